# SPDX-License-Identifier: Apache-2.0
"""Defines the identity of a caller, as Kubernetes knows it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Identity:
    """A user as kube-apiserver authenticated them; hashable."""

    user: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.user, self.uid, self.groups, self.extra)))

    def __hash__(self) -> int:
        """Return the hash. It is computed once, because every request looks up the rights of its user."""
        return self._hash
