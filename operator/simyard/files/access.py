# SPDX-License-Identifier: Apache-2.0
"""Address of the object store, and the credentials for it."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import SplitResult, urlsplit

from simyard.files.signature import Credentials

log = logging.getLogger(__name__)

DEFAULT_REGION = "us-east-1"
_HTTPS_PORTS = frozenset({"443", "8443"})


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """The access to one bucket.

    Attributes:
        endpoint: URL of the S3 server, with which the platform, users and workers reach it.
        bucket: name of the bucket, in the path of each URL ("path style").
        credentials: account of the platform; it may read, write, list and delete objects of the bucket.
        ca_certificate: CA that signed the server's certificate (PEM); None: the system's CAs.
        encryption_required: True if an upload counts only when the server says that it encrypts the object.
        problem: the reason why this access cannot be used, with the remedy; every request then fails with it.
    """

    endpoint: str
    bucket: str
    credentials: Credentials
    ca_certificate: str | None = field(default=None, repr=False)
    encryption_required: bool = False
    problem: str = ""

    @classmethod
    def open_directory(cls, directory: Path | None) -> Self | None:
        """Read a Secret where it is mounted; None without a directory.

        A Secret that cannot be used must not end the platform, so it becomes an access with a problem.
        """
        if directory is None:
            return None
        try:
            return cls.from_directory(directory)
        except ValueError as error:
            problem = f"{error}: correct the Secret, then restart the operator and the apiserver"
            log.error("files cannot be used: %s", problem)
            return cls("", "", Credentials("", ""), problem=problem)

    @classmethod
    def from_directory(cls, directory: Path) -> Self:
        """Read a Secret where it is mounted: one file per key.

        Keys: ``endpoint``, ``bucket``, ``accessKey``, ``secretKey``; optional ``region``, ``ca.crt`` and ``encryption``
        (``Required`` or ``Optional``). An ObjectBucketClaim has ``host`` and ``port`` in place of ``endpoint``.

        Raises:
            ValueError: a key is missing or cannot be read; the message names the key, not its value.
        """
        try:
            values = {path.name: path.read_text() for path in directory.iterdir() if path.is_file()}
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"the secret of the file store cannot be read from {directory}: {error}") from None
        return cls.from_values(values)

    @classmethod
    def from_values(cls, values: Mapping[str, str]) -> Self:
        """Read the values of such a Secret; errors as for :meth:`from_directory`."""
        values = {name: value.strip() for name, value in values.items()}
        if not values.get("endpoint") and values.get("host"):
            values["endpoint"] = _make_endpoint(values["host"], values.get("port", ""), "ca.crt" in values)
        missing = [key for key in ("endpoint", "bucket", "accessKey", "secretKey") if not values.get(key)]
        if missing:
            raise ValueError(f"the secret of the file store has no {', '.join(missing)}")
        endpoint = _split_endpoint(values["endpoint"])
        encryption = values.get("encryption") or "Optional"
        if encryption not in ("Required", "Optional"):
            raise ValueError("the secret of the file store: encryption must be Required or Optional")
        access = cls(
            endpoint=f"{endpoint.scheme}://{endpoint.netloc}",
            bucket=values["bucket"],
            credentials=Credentials(values["accessKey"], values["secretKey"], values.get("region") or DEFAULT_REGION),
            ca_certificate=values.get("ca.crt") or None,
            encryption_required=encryption == "Required",
        )
        access.make_tls_context()
        return access

    def make_tls_context(self) -> ssl.SSLContext:
        """Return the settings of TLS connections to the server.

        Raises:
            ValueError: the CA certificate cannot be read.
        """
        try:
            return ssl.create_default_context(cadata=self.ca_certificate)
        except (ssl.SSLError, ValueError, TypeError) as error:
            raise ValueError(f"the secret of the file store: ca.crt has no certificate in PEM: {error}") from None

    def url_of(self, key: str) -> str:
        """Return the unsigned URL of an object; of the bucket for the empty key."""
        return f"{self.endpoint}/{self.bucket}" + (f"/{key}" if key else "")


def _split_endpoint(text: str) -> SplitResult:
    try:
        endpoint = urlsplit(text)
        valid = endpoint.scheme in ("http", "https") and endpoint.hostname and endpoint.port != 0
    except ValueError:
        valid = False
    if not valid or "@" in endpoint.netloc or endpoint.path.strip("/"):
        raise ValueError("the secret of the file store: endpoint must be http[s]://host[:port]")
    return endpoint


def _make_endpoint(host: str, port: str, has_ca: bool) -> str:
    """Return the URL of a server that is described as an ObjectBucketClaim does it, without a scheme.

    A server with a CA of its own, or at a usual port of HTTPS, speaks TLS.
    """
    scheme = "https" if has_ca or port in _HTTPS_PORTS else "http"
    return f"{scheme}://{host}" + (f":{port}" if port and port != "0" else "")
