# SPDX-License-Identifier: Apache-2.0
"""Discovery documents of the aggregated API. The module does no I/O.

Each resource has a kind and verbs. The documents also list the parents of the subresources. Otherwise, kube-apiserver
would add parents without a kind, which some clients cannot read. The only verb of the parents is ``get``, because some
controllers list or delete every resource that they discover (garbage collection, deletion of namespaces). For the same
reason, the documents do not show the verb ``delete`` of files: the deletion of a namespace must not wait for the file
store.
"""

from __future__ import annotations

from simyard.api.base import Json
from simyard.api.names import (
    ACTION_RESULT,
    ATTRIBUTE_VALUES,
    FILES,
    STUDIES,
    STUDY_RESULTS,
    SUBRESOURCES_API_VERSION,
    SUBRESOURCES_GROUP,
    VERSION,
    WORKERS,
)
from simyard.serving.calls import TARGETS

_GROUP_VERSION = {"groupVersion": SUBRESOURCES_API_VERSION, "version": VERSION}


def make_group() -> Json:
    """Return the ``APIGroup``."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group()}


def make_group_list() -> Json:
    """Return the ``APIGroupList``, which contains only this group."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group()]}


def make_resource_list() -> Json:
    """Return the ``APIResourceList`` of the group's only version."""
    resources: list[Json] = []
    for target in TARGETS.values():
        resources += [
            _resource(target.plural, target.kind, ["get"], singular=target.kind.lower()),
            _resource(f"{target.plural}/actions", ACTION_RESULT, ["create", "update"]),
            _resource(f"{target.plural}/attributes", ATTRIBUTE_VALUES, ["get", "update"]),
        ]
    resources.append(_resource(f"{WORKERS.plural}/log", WORKERS.kind, ["get"]))
    resources.append(_resource(STUDIES.plural, STUDIES.kind, ["get"], singular=STUDIES.kind.lower()))
    resources.append(_resource(f"{STUDIES.plural}/results", STUDY_RESULTS, ["get"]))
    resources.append(_resource(FILES.plural, FILES.kind, ["create", "get", "list"], singular=FILES.kind.lower()))
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
