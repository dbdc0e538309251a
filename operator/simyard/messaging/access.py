# SPDX-License-Identifier: Apache-2.0
"""Address of the broker, and credentials for a connection to it."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from yarl import URL

from simyard_adapter.bootstrap import BrokerAddress

HEARTBEAT_SECONDS = 10
"""Interval of AMQP heartbeats; a connection without heartbeats for about three intervals counts as lost."""


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """The access of one user to one virtual host; with ``ca_certificate`` (PEM), connections use TLS."""

    host: str
    port: int
    vhost: str
    username: str
    password: str = field(repr=False)
    management_url: str
    ca_certificate: str | None = field(default=None, repr=False)

    @property
    def tls(self) -> bool:
        """True if connections are encrypted and the broker's certificate is verified."""
        return self.ca_certificate is not None

    @classmethod
    def from_url(cls, amqp_url: str, management_url: str, ca_file: Path | None = None) -> Self:
        """Parse ``amqp[s]://user:password@host[:port][/vhost]``; the default virtual host is ``/``.

        Raises:
            ValueError: the URL has another form, or it is ``amqps`` without ``ca_file``, or ``amqp`` with ``ca_file``.
        """
        url = URL(amqp_url)
        if url.scheme not in ("amqp", "amqps") or not url.host or url.user is None or url.password is None:
            raise ValueError("the broker's URL must be amqp[s]://user:password@host[:port][/vhost]")
        tls = url.scheme == "amqps"
        if tls != (ca_file is not None):
            raise ValueError("the broker's URL: amqps:// needs the file of the CA certificate, and amqp:// has none")
        return cls(
            host=url.host,
            port=url.port or _amqp_port(tls),
            vhost=url.path[1:] or "/",
            username=url.user,
            password=url.password,
            management_url=management_url.rstrip("/"),
            ca_certificate=ca_file.read_text() if ca_file else None,
        )

    @classmethod
    def from_secret(cls, data: Mapping[str, str]) -> Self:
        """Parse ``data`` of a Secret, whose values are base64.

        The keys are ``host``, ``username`` and ``password``. Optional keys are ``port``, ``vhost`` (by default ``/``)
        and ``management_url`` (by default the same host and RabbitMQ's usual port). With the optional key ``ca.crt``,
        connections use TLS; the optional key ``tls`` must agree with this.

        Raises:
            ValueError: a key is missing or cannot be read; the message names the key, not its value.
        """
        values: dict[str, str] = {}
        for key, encoded in data.items():
            try:
                values[key] = base64.b64decode(encoded, validate=True).decode()
            except ValueError:
                raise ValueError(f"the broker's secret: {key} is not base64 of UTF-8 text") from None
        return cls._from_values(values)

    @classmethod
    def from_directory(cls, directory: Path) -> Self:
        """Read the directory in which a Secret is mounted; its keys, one file for each, are as for :meth:`from_secret`.

        Raises:
            ValueError: a key is missing or cannot be read; the message names the key, not its value.
        """
        try:
            values = {path.name: path.read_text() for path in directory.iterdir() if path.is_file()}
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"the broker's secret cannot be read from {directory}: {error}") from None
        return cls._from_values(values)

    @classmethod
    def _from_values(cls, values: Mapping[str, str]) -> Self:
        missing = [key for key in ("host", "username", "password") if not values.get(key)]
        if missing:
            raise ValueError(f"the broker's secret has no {', '.join(missing)}")
        ca_certificate = values.get("ca.crt") or None
        tls = ca_certificate is not None
        if values.get("tls", str(tls)).strip().lower() != str(tls).lower():
            raise ValueError("the broker's secret: tls must be true with ca.crt and false without")
        port = values.get("port") or str(_amqp_port(tls))
        if not port.isdecimal():
            raise ValueError("the broker's secret: port is not a number")
        management = f"https://{values['host']}:15671" if tls else f"http://{values['host']}:15672"
        return cls(
            host=values["host"],
            port=int(port),
            vhost=values.get("vhost") or "/",
            username=values["username"],
            password=values["password"],
            management_url=(values.get("management_url") or management).rstrip("/"),
            ca_certificate=ca_certificate,
        )

    def to_secret(self) -> dict[str, str]:
        """Return the ``stringData`` of a Secret that :meth:`from_secret` can read."""
        data = {
            "host": self.host,
            "port": str(self.port),
            "vhost": self.vhost,
            "username": self.username,
            "password": self.password,
            "tls": str(self.tls).lower(),
            "management_url": self.management_url,
        }
        if self.ca_certificate is not None:
            data["ca.crt"] = self.ca_certificate
        return data

    def as_user(self, username: str, password: str) -> Self:
        """Return the access of another user to the same virtual host."""
        return replace(self, username=username, password=password)

    def enter_vhost(self, vhost: str) -> Self:
        """Return the access of the same user to another virtual host."""
        return replace(self, vhost=vhost)

    def build_address(self) -> BrokerAddress:
        """Return the access in the form of a worker's bootstrap document."""
        return BrokerAddress(self.host, self.port, self.vhost, self.username, self.password, self.ca_certificate)

    def build_amqp_url(self, connection_name: str) -> URL:
        """Return the URL for the AMQP client; the broker's list of connections shows ``connection_name``."""
        return URL.build(
            scheme="amqps" if self.tls else "amqp",
            user=self.username,
            password=self.password,
            host=self.host,
            port=self.port,
            path="/" + self.vhost,
            query={"name": connection_name, "heartbeat": str(HEARTBEAT_SECONDS)},
        )

    def make_ssl_context(self) -> ssl.SSLContext | None:
        """Return a TLS context that verifies the broker against its CA; None without TLS."""
        return ssl.create_default_context(cadata=self.ca_certificate) if self.tls else None


AccessSource = BrokerAccess | Callable[[], BrokerAccess]
"""An access, or a function that returns the present access, because the password can change between connections."""


def resolve_access(source: AccessSource) -> BrokerAccess:
    """Return the access for a new connection."""
    return source if isinstance(source, BrokerAccess) else source()


def _amqp_port(tls: bool) -> int:
    return 5671 if tls else 5672
