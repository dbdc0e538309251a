"""What the operator keeps of a ServiceAction, and which ones it does not take.

Parameters and results may be large, and finished actions stay for a day. So the operator's memory holds neither results
nor large parameters: these are read again when they are checked and when they are sent. Of the metadata it holds what
it reads (:mod:`simyard.api.kept_metadata`).
"""

from __future__ import annotations

from simyard.api.base import Json
from simyard.api.kept_metadata import without_surplus
from simyard.api.service_action import ServiceAction
from simyard.api.weights import excess, weigh_value

MAX_KEPT_WEIGHT = 1024
"""Larger parameters are not kept in memory."""


class QueuedAction(ServiceAction):
    """A ServiceAction as the operator keeps it, without its result.

    Attributes:
        left_out: whether ``spec.parameters`` is empty because they were left out.
        excess: why the parameters are too large to be sent; empty when they are not.
    """

    left_out: bool = False
    excess: str = ""


def read_action(raw: Json, *, whole: bool = False) -> QueuedAction:
    """Return what is kept of a ServiceAction; with ``whole``, with large parameters (but none above the limit)."""
    spec, status = raw["spec"], raw.get("status") or {}
    parameters = spec.get("parameters") or {}
    finished = any(item.get("status") == "True" for item in status.get("conditions") or ())
    too_large = "" if finished else excess(parameters)
    keeps = not finished and not too_large and (whole or weigh_value(parameters) <= MAX_KEPT_WEIGHT)
    return QueuedAction.model_validate(
        {
            **without_surplus(raw),
            "spec": {**spec, "parameters": parameters if keeps else {}},
            "status": {name: value for name, value in status.items() if name != "result"},
            "leftOut": bool(parameters) and not keeps,
            "excess": too_large,
        }
    )
