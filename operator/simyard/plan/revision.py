"""What a worker's machine was made from, as a short hash: workers with another one are outdated.

In it are the service's interface, connector, resources and image, and the pool's attributes. Not in it is what needs no
new machine: descriptions, who may call what, and time limits (a worker keeps those that it was started with). Fields
that stand at their default are left out, so that a new version of the platform with more fields replaces nobody.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from simyard.api.base import ApiModel, Json
from simyard.api.simulation_service import SimulationService

_DIGITS = 10
_NOT_IN_A_MACHINE = frozenset({"description", "timeoutSeconds"})


def service_digest(service: SimulationService) -> str:
    """Changes with all of a service that a machine is made from, but for the image, which depends on the site."""
    spec = service.spec
    interface = _given(spec.interface)
    parts = {kind: [_stripped(item) for item in interface.get(kind, ())] for kind in ("attributes", "actions")}
    return _digest([parts, _given(spec.connector), _given(spec.resources)])


def revision(digest: str, image: str, attributes: Json) -> str:
    """The revision of a worker: from the digest of its service, its image, and the initial values of attributes."""
    return _digest([digest, image, attributes])


def _given(model: ApiModel) -> Json:
    data: Json = model.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    return data


def _stripped(declared: Json) -> Json:
    """A declared attribute, action, parameter or field of a result, without what is for people."""
    kept = {name: value for name, value in declared.items() if name not in _NOT_IN_A_MACHINE}
    for name in ("parameters", "result"):
        if name in kept:
            kept[name] = [_stripped(item) for item in kept[name]]
    return kept


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
