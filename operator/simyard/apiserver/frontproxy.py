"""Who asks: kube-apiserver authenticates the user and says so in headers, over a connection that proves it is it.

How it proves that stands in ConfigMap ``kube-system/extension-apiserver-authentication``, which kube-apiserver writes
(kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import unquote

import orjson
from multidict import CIMultiDictProxy

from simyard.api.base import Json
from simyard_sites.kubernetes.resource import Resource

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
CONFIG_NAMESPACE = "kube-system"
CONFIG_NAME = "extension-apiserver-authentication"


@dataclass(frozen=True, slots=True)
class Identity:
    """A user as kube-apiserver knows them; hashable."""

    user: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.user, self.uid, self.groups, self.extra)))

    def __hash__(self) -> int:
        """Found once: every request looks up what its user may do."""
        return self._hash


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """Whose word on a user's identity counts.

    ``client_ca`` is PEM; with no ``allowed_names`` every name that it vouches for counts. Header names are lower case.
    """

    client_ca: str
    allowed_names: frozenset[str]
    user_headers: tuple[str, ...]
    uid_headers: tuple[str, ...]
    group_headers: tuple[str, ...]
    extra_prefixes: tuple[str, ...]

    @classmethod
    def from_config_map(cls, config_map: Json) -> Self:
        """Read the ConfigMap.

        Raises:
            ValueError: a key is missing, or is not what kube-apiserver writes.
        """
        data: Mapping[str, str] = config_map.get("data") or {}
        client_ca = data.get("requestheader-client-ca-file")
        if not client_ca:
            raise ValueError(
                f"ConfigMap {CONFIG_NAMESPACE}/{CONFIG_NAME} has no requestheader-client-ca-file: "
                "the aggregation layer of kube-apiserver is not configured"
            )
        headers = ("username-headers", "uid-headers", "group-headers", "extra-headers-prefix")
        user, uid, group, extra = (
            tuple(item.lower() for item in _strings(data, f"requestheader-{key}")) for key in headers
        )
        return cls(client_ca, frozenset(_strings(data, "requestheader-allowed-names")), user, uid, group, extra)

    def identity(self, certificate: Mapping[str, Any] | None, headers: CIMultiDictProxy[str]) -> Identity | None:
        """The user in the headers, or None unless the peer's verified ``certificate`` entitles it to name one.

        ``certificate`` is as :meth:`ssl.SSLSocket.getpeercert` gives it.
        """
        if not certificate or (self.allowed_names and common_name(certificate) not in self.allowed_names):
            return None
        user = self._first(headers, self.user_headers)
        if not user:
            return None
        return Identity(
            user=user,
            uid=self._first(headers, self.uid_headers),
            groups=tuple(value for name in self.group_headers for value in headers.getall(name, ())),
            extra=self._extra(headers),
        )

    def _extra(self, headers: CIMultiDictProxy[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        extra: dict[str, list[str]] = {}
        for header, value in headers.items():
            lowered = header.lower()
            for prefix in self.extra_prefixes:
                if lowered.startswith(prefix):
                    extra.setdefault(unquote(lowered[len(prefix) :]), []).append(value)
        return tuple((key, tuple(values)) for key, values in sorted(extra.items()))

    @staticmethod
    def _first(headers: CIMultiDictProxy[str], names: tuple[str, ...]) -> str:
        return next((headers[name] for name in names if headers.get(name)), "")


def common_name(certificate: Mapping[str, Any]) -> str:
    """The subject's common name, empty if it has none."""
    names = (value for part in certificate.get("subject", ()) for key, value in part if key == "commonName")
    return next(names, "")


def _strings(data: Mapping[str, str], key: str) -> list[str]:
    text = data.get(key) or "[]"
    try:
        values = orjson.loads(text)
    except orjson.JSONDecodeError:
        values = None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"ConfigMap {CONFIG_NAMESPACE}/{CONFIG_NAME}: {key} is not a JSON list of strings")
    return values
