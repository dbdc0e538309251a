"""The documents by which clients find out what the API serves. Pure.

Each resource has a kind and verbs, and the parents of the subresources are listed too: without them kube-apiserver
makes up parents with no kind, which some clients cannot read. The parents offer ``get`` alone, so that the controllers
that list or delete everything they discover (garbage collection, namespace deletion) leave them alone.
"""

from __future__ import annotations

from simyard.api.base import Json
from simyard.api.names import SUBRESOURCES_API_VERSION, SUBRESOURCES_GROUP, VERSION, WORKERS
from simyard.apiserver.routes import TARGETS

ACTION_RESULT = "ActionResult"
ATTRIBUTE_VALUES = "AttributeValues"

_GROUP_VERSION = {"groupVersion": SUBRESOURCES_API_VERSION, "version": VERSION}


def group() -> Json:
    """The ``APIGroup``."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group()}


def group_list() -> Json:
    """The ``APIGroupList``: our group alone."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group()]}


def resource_list() -> Json:
    """The ``APIResourceList`` of the group's one version."""
    resources: list[Json] = []
    for target in TARGETS.values():
        resources += [
            _resource(target.plural, target.kind, ["get"], singular=target.kind.lower()),
            _resource(f"{target.plural}/actions", ACTION_RESULT, ["create", "update"]),
            _resource(f"{target.plural}/attributes", ATTRIBUTE_VALUES, ["get", "update"]),
        ]
    resources.append(_resource(f"{WORKERS.plural}/log", WORKERS.kind, ["get"]))
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": SUBRESOURCES_API_VERSION,
        "resources": resources,
    }


def _group() -> Json:
    return {"name": SUBRESOURCES_GROUP, "versions": [_GROUP_VERSION], "preferredVersion": _GROUP_VERSION}


def _resource(name: str, kind: str, verbs: list[str], singular: str = "") -> Json:
    return {
        "name": name,
        "singularName": singular,
        "namespaced": True,
        "group": SUBRESOURCES_GROUP,
        "version": VERSION,
        "kind": kind,
        "verbs": verbs,
    }
