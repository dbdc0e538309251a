# SPDX-License-Identifier: Apache-2.0
"""Computation of the revision of a worker: a short hash of everything that its machine is made from.

A worker whose revision differs from the present one is outdated. The hash covers the service's interface, connector,
resources and image, and the pool's attributes. It does not cover fields whose change needs no new machine:
descriptions, rights and timeouts (a worker keeps the timeouts with which it was started). It does not cover fields with
their default value either, so that a new version of the platform with additional fields replaces no worker.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from simyard.api.base import ApiModel, Json
from simyard.api.simulation_service import SimulationService

_DIGITS = 10
_NOT_IN_A_MACHINE = frozenset({"description", "timeoutSeconds"})


def compute_service_digest(service: SimulationService) -> str:
    """Return a hash of the parts of a service from which machines are made, except the image, which differs by site."""
    spec = service.spec
    interface = _dump_given(spec.interface)
    parts = {kind: [_strip(item) for item in interface.get(kind, ())] for kind in ("attributes", "actions")}
    return _hash([parts, _dump_given(spec.connector), _dump_given(spec.resources)])


def compute_revision(digest: str, image: str, attributes: Json) -> str:
    """Return the revision for a service's digest, an image, and the initial values of a pool's attributes."""
    return _hash([digest, image, attributes])


def _dump_given(model: ApiModel) -> Json:
    data: Json = model.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    return data


def _strip(declared: Json) -> Json:
    """Return a declaration (attribute, action, parameter or result field) without its texts, rights and timeouts."""
    kept = {name: value for name, value in declared.items() if name not in _NOT_IN_A_MACHINE}
    for name in ("parameters", "result"):
        if name in kept:
            kept[name] = [_strip(item) for item in kept[name]]
    return kept


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
