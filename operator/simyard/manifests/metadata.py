# SPDX-License-Identifier: Apache-2.0
"""Metadata that all objects of an installation share."""

from __future__ import annotations

from simyard.api.base import Json

PART_OF = {"app.kubernetes.io/part-of": "simyard"}


def build_metadata(name: str, namespace: str = "", **labels: str) -> Json:
    """Return the ``metadata`` of an object; without a namespace, the object is cluster-scoped."""
    result: Json = {"name": name, "labels": {**PART_OF, **labels}}
    if namespace:
        result["namespace"] = namespace
    return result
