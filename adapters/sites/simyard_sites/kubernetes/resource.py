# SPDX-License-Identifier: Apache-2.0
"""Names one resource of a Kubernetes API."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of the Kubernetes API, with the parts of its path.

    ``name_max`` limits names to DNS labels of this many characters; None allows every name that Kubernetes allows.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    name_max: int | None = None

    @property
    def api_version(self) -> str:
        """The value of ``apiVersion`` in an object."""
        return f"{self.group}/{self.version}" if self.group else self.version
