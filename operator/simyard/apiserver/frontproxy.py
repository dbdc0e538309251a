# SPDX-License-Identifier: Apache-2.0
"""Identity of callers behind the front proxy, which is kube-apiserver. The module does no I/O.

kube-apiserver authenticates a user and sends the name of the user in headers, over a connection with its client
certificate. It writes the CA of this certificate and the names of the headers into the ConfigMap
``kube-system/extension-apiserver-authentication``
(kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import unquote

import orjson
from multidict import CIMultiDictProxy

from simyard.api.base import Json
from simyard.serving.identity import Identity
from simyard_sites.kubernetes.resource import Resource

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
CONFIG_NAMESPACE = "kube-system"
CONFIG_NAME = "extension-apiserver-authentication"


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """Settings that decide which peer may send the name of a user, and in which headers.

    ``client_ca`` is PEM. If ``allowed_names`` is empty, a certificate of this CA may have any name. Names of headers
    are in lower case.
    """

    client_ca: str
    allowed_names: frozenset[str]
    user_headers: tuple[str, ...]
    uid_headers: tuple[str, ...]
    group_headers: tuple[str, ...]
    extra_prefixes: tuple[str, ...]

    @classmethod
    def from_config_map(cls, config_map: Json) -> Self:
        """Parse the settings in the ConfigMap.

        Raises:
            ValueError: a key is missing, or its value does not have the form that kube-apiserver writes.
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

    def read_identity(self, certificate: Mapping[str, Any] | None, headers: CIMultiDictProxy[str]) -> Identity | None:
        """Return the user in the headers; None if the peer may not send such headers.

        ``certificate`` is the verified certificate of the peer, in the form of :meth:`ssl.SSLSocket.getpeercert`.
        """
        if not certificate or (self.allowed_names and read_common_name(certificate) not in self.allowed_names):
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


def read_common_name(certificate: Mapping[str, Any]) -> str:
    """Return the common name of the certificate's subject; empty if it has none."""
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
