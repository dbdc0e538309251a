# SPDX-License-Identifier: Apache-2.0
"""Reduced form of a ServiceAction that the operator keeps in memory.

Parameters and results may be large, and finished actions stay for a day. So the operator does not keep results and
large parameters in memory. It reads the parameters again from the API server before it checks and sends an action. It
reduces the metadata as well (:mod:`simyard.api.kept_metadata`).
"""

from __future__ import annotations

import orjson

from simyard.api.base import Json
from simyard.api.kept_metadata import strip_metadata
from simyard.api.service_action import ServiceAction
from simyard.api.weights import find_excess, weigh_value

MAX_KEPT_WEIGHT = 1024
"""Maximum weight of parameters that the operator keeps in memory."""
MAX_STORED_BYTES = 1_572_864
"""Maximum size of a request to etcd, by etcd's default: 1.5 MiB."""


class QueuedAction(ServiceAction):
    """ServiceAction in the form that the operator keeps in memory, without the result.

    Attributes:
        left_out: True if ``spec.parameters`` is empty although the ServiceAction has parameters.
        excess: Error text if the parameters are too large for a message to a worker, else empty.
        stored_bytes: Size of the whole object as JSON, as etcd stores it.
    """

    left_out: bool = False
    excess: str = ""
    stored_bytes: int = 0


def read_action(raw: Json, *, whole: bool = False) -> QueuedAction:
    """Return the reduced form of a ServiceAction.

    With ``whole``, the result also has large parameters, unless they are too large for a message to a worker.
    """
    spec, status = raw["spec"], raw.get("status") or {}
    parameters = spec.get("parameters") or {}
    finished = any(item.get("status") == "True" for item in status.get("conditions") or ())
    too_large = "" if finished else find_excess(parameters)
    keeps = not finished and not too_large and (whole or weigh_value(parameters) <= MAX_KEPT_WEIGHT)
    return QueuedAction.model_validate(
        {
            **strip_metadata(raw),
            "spec": {**spec, "parameters": parameters if keeps else {}},
            "status": {name: value for name, value in status.items() if name != "result"},
            "leftOut": bool(parameters) and not keeps,
            "excess": too_large,
            "storedBytes": measure_bytes(raw),
        }
    )


def measure_bytes(raw: Json) -> int:
    """Return the size of an object as JSON, in bytes; ``MAX_STORED_BYTES`` if it is nested too deeply to be encoded."""
    try:
        return len(orjson.dumps(raw))
    except TypeError:
        return MAX_STORED_BYTES
