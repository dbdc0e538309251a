"""What one resource of a Kubernetes API is called."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the Kubernetes API: what its path is made of.

    ``name_max``: names are DNS labels of at most so many characters (None: as long as Kubernetes permits).
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    name_max: int | None = None

    @property
    def api_version(self) -> str:
        """As in ``apiVersion`` of an object."""
        return f"{self.group}/{self.version}" if self.group else self.version
