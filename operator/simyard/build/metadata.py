"""The metadata that all objects of an installation share."""

from __future__ import annotations

from simyard.api.base import Json

PART_OF = {"app.kubernetes.io/part-of": "simyard"}


def metadata(name: str, namespace: str = "", **labels: str) -> Json:
    """The ``metadata`` of an object; cluster-scoped without a namespace."""
    result: Json = {"name": name, "labels": {**PART_OF, **labels}}
    if namespace:
        result["namespace"] = namespace
    return result
