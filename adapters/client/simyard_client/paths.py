# SPDX-License-Identifier: Apache-2.0
"""Paths, labels and conditions of the platform's API, as far as the client uses them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

Json = dict[str, Any]
"""An object of the API."""

API_VERSION = "simyard.dev/v1alpha1"
_OBJECTS = "/apis/simyard.dev/v1alpha1"
_SUBRESOURCES = "/apis/subresources.simyard.dev/v1alpha1"

CLOUD_SITES = "cloudsites"
SIMULATION_SERVICES = "simulationservices"
WORKER_POOLS = "workerpools"
WORKERS = "workers"
SERVICE_ACTIONS = "serviceactions"
STUDIES = "studies"
USAGES = "usages"
FILES = "files"

IDLE = "Idle"
"""Reason of the condition ``Available`` of a pool that removed its idle workers."""
LABEL_POOL = "simyard.dev/pool"
LABEL_BATCH = "simyard.dev/batch"
"""Label of the ServiceActions of one batch; its value is the id of the batch."""


def build_path(plural: str, namespace: str = "", name: str = "") -> str:
    """Return the path of an object, or of the objects of a kind; without a namespace, in all namespaces."""
    return _OBJECTS + _join(plural, namespace, name)


def build_subresource_path(plural: str, namespace: str, name: str = "", *words: str) -> str:
    """Return a path in the aggregated API: an object, or one of its subresources."""
    return _SUBRESOURCES + _join(plural, namespace, name) + "".join(f"/{quote(word, safe='')}" for word in words)


def find_condition(item: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return the condition of an object with this type; an empty one if the object has none."""
    conditions = (item.get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition.get("type") == kind), {})


def has_condition(item: Mapping[str, Any], kind: str) -> bool:
    """Return whether a condition of an object is True."""
    return find_condition(item, kind).get("status") == "True"


def is_finished(item: Mapping[str, Any]) -> bool:
    """Return whether a ServiceAction has a result, or will never have one."""
    return has_condition(item, "Complete") or has_condition(item, "Failed")


def _join(plural: str, namespace: str, name: str) -> str:
    scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{scope}/{plural}" + (f"/{quote(name, safe=':')}" if name else "")
