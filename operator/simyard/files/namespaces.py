# SPDX-License-Identifier: Apache-2.0
"""Namespaces as owners of files. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from simyard.api.base import Json
from simyard.api.names import ANNOTATION_FILES_QUOTA
from simyard.api.quantities import format_bytes, parse_bytes
from simyard.files.quotas import QuotaError


@dataclass(frozen=True, slots=True)
class FileNamespace:
    """A namespace: its uid begins the keys of its files, and its quota is a number of bytes, None for no limit."""

    name: str
    uid: str
    quota: int | None

    def describe_excess(self, error: QuotaError) -> str:
        """Return the error text for an upload that does not fit into the quota."""
        return (
            f"exceeded the quota of files of the namespace {self.name}: requested: {format_bytes(error.size)}, "
            f"used: {format_bytes(error.used)}, limited: {format_bytes(error.quota)}: delete files with "
            "`kubectl simyard files --delete ADDRESS`, or ask the platform team to raise the quota with the annotation "
            f"{ANNOTATION_FILES_QUOTA} of the namespace. A deleted file counts until the next sweep, and while "
            "the URL of its upload is valid (1 hour)"
        )


def read_namespace(raw: Json, default_quota: int | None) -> FileNamespace:
    """Return the part of a Namespace object that concerns files.

    Raises:
        ValueError: the annotation with the quota is wrong.
    """
    metadata = raw["metadata"]
    name, text = str(metadata["name"]), (metadata.get("annotations") or {}).get(ANNOTATION_FILES_QUOTA)
    try:
        quota = default_quota if text is None else parse_bytes(text)
    except ValueError as error:
        problem = f"the annotation {ANNOTATION_FILES_QUOTA} of the namespace {name} is wrong: {error}"
        raise ValueError(problem) from None
    return FileNamespace(name, str(metadata["uid"]), quota)
