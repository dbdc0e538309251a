# SPDX-License-Identifier: Apache-2.0
"""Define the interface of a broker, and use an existing RabbitMQ. :mod:`simyard_dev.local_broker` runs a new one."""

import socket
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from simyard_dev.errors import SetupError

DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}
# The management plugin alone takes 5 s to stop.
GRACE_SECONDS = 20.0
REQUEST_SECONDS = 5.0
STATISTICS_SECONDS = 5
"""RabbitMQ's default interval for statistics."""


@dataclass(frozen=True)
class BrokerAddress:
    """The URLs of a broker; the AMQP URLs contain the credentials of the administrator."""

    url: str
    tls_url: str | None
    """None if the broker offers no TLS."""
    ca_file: Path | None
    """CA of the broker's certificate; None means the CAs of the system."""
    management_url: str | None
    """Base URL of the management API, without credentials; None if it is unknown."""


class Broker(ABC):
    """The interface of a RabbitMQ, which collects statistics every `statistics_seconds`."""

    statistics_seconds = STATISTICS_SECONDS

    @property
    @abstractmethod
    def address(self) -> BrokerAddress:
        """The URLs of the broker; valid once it has started."""

    @abstractmethod
    def is_running(self) -> bool:
        """Return whether the broker runs; it may not be ready yet."""

    @abstractmethod
    def start(self, *, fresh: bool = False) -> None:
        """Start our own broker (`fresh`: without its old state) or check an existing one; wait until it is ready.

        Raises:
            SetupError: RabbitMQ is not installed, did not become ready, or nothing listens at the given address.
        """

    @abstractmethod
    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Stop our own broker."""

    @property
    def url(self) -> str:
        """The URL for clients, with the credentials of the administrator."""
        return self.address.url

    @property
    def tls_url(self) -> str | None:
        """The URL for clients with TLS; None if the broker offers no TLS."""
        return self.address.tls_url

    @property
    def ca_file(self) -> Path | None:
        """The CA of the broker's certificate; None means the CAs of the system."""
        return self.address.ca_file

    @property
    def management_url(self) -> str | None:
        """The base URL of the management API, without credentials; None if it is unknown."""
        return self.address.management_url

    @property
    def user(self) -> str:
        """The administrator's name."""
        return unquote(urlsplit(self.url).username or "guest")

    @property
    def password(self) -> str:
        """The administrator's password."""
        return unquote(urlsplit(self.url).password or "guest")

    @property
    def virtual_host(self) -> str:
        """The virtual host of the URL."""
        return unquote(urlsplit(self.url).path.removeprefix("/")) or "/"


class ExistingBroker(Broker):
    """A broker that existed before. This class never starts or stops it, and never deletes its state."""

    def __init__(self, url: str, management_url: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
            raise SetupError(
                "RABBITMQ_URL is not of the form amqp[s]://USER:PASSWORD@HOST[:PORT][/VIRTUAL_HOST]: correct it"
            )
        self._address = BrokerAddress(url, url if parts.scheme == "amqps" else None, None, management_url)
        self._host = parts.hostname
        self._port = parts.port or DEFAULT_PORTS[parts.scheme]

    @property
    def address(self) -> BrokerAddress:
        """The URLs that the environment variables gave."""
        return self._address

    def is_running(self) -> bool:
        """Return whether a server listens at the address."""
        try:
            socket.create_connection((self._host, self._port), timeout=REQUEST_SECONDS).close()
        except OSError:
            return False
        return True

    def start(self, *, fresh: bool = False) -> None:
        """Check that the broker answers.

        Raises:
            SetupError: nothing listens at the address.
        """
        if not self.is_running():
            raise SetupError(
                f"no broker answers at {self._host}:{self._port} (RABBITMQ_URL): start it, or unset the variable"
            )

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Do nothing, because other programs use an existing broker."""
