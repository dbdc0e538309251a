"""A RabbitMQ on loopback, from Debian's package, that touches nothing of the system's own; or an existing one."""

import base64
import contextlib
import hashlib
import http.client
import os
import secrets
import shutil
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from simyard_dev.certificates import CertificateAuthority
from simyard_dev.errors import SetupError
from simyard_dev.files import locked, write_whole
from simyard_dev.packages import ensure_packages
from simyard_dev.ports import LOOPBACK, Ports, is_listening
from simyard_dev.processes import Process
from simyard_dev.progress import step

PACKAGES = ("rabbitmq-server",)
# Not /usr/sbin/rabbitmq-server, which changes to the user `rabbitmq`.
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
PLUGINS = ("rabbitmq_management", "rabbitmq_event_exchange")
VIRTUAL_HOST = "simyard"
USER = "simyard-admin"
DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}
READY_SECONDS = 120.0
# The management plugin alone takes 5 s to stop.
GRACE_SECONDS = 20.0
REQUEST_SECONDS = 5.0
HEARTBEAT_SECONDS = 30
STATISTICS_SECONDS = 5
"""RabbitMQ's default."""
MINIMUM_FREE_DISK = "100MB"
# What a client says first, and the type of the frame with which a broker answers (AMQP 0-9-1, 4.2.2, 4.2.3).
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD_FRAME = b"\x01"


@dataclass(frozen=True)
class BrokerAddress:
    """Where a broker is; the URLs of AMQP hold the administrator's credentials."""

    url: str
    tls_url: str | None
    """None if TLS is not offered."""
    ca_file: Path | None
    """What to verify the broker's certificate with; None means the system's authorities."""
    management_url: str | None
    """The base of the management API, without credentials; None if it is not known."""


class Broker(ABC):
    """A RabbitMQ to work with; it collects statistics every `statistics_seconds`."""

    statistics_seconds = STATISTICS_SECONDS

    @property
    @abstractmethod
    def address(self) -> BrokerAddress:
        """Where the broker is, once it has been started."""

    @abstractmethod
    def is_running(self) -> bool:
        """Tell whether the broker runs; it may not be ready yet."""

    @abstractmethod
    def start(self, *, fresh: bool = False) -> None:
        """Make sure that the broker is ready; `fresh` starts one of our own without state.

        Raises:
            SetupError: it is not installed, did not become ready, or nothing listens there.
        """

    @abstractmethod
    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Stop a broker of our own."""

    @property
    def url(self) -> str:
        """Where clients connect, as a URL with the administrator's credentials."""
        return self.address.url

    @property
    def tls_url(self) -> str | None:
        """The same with TLS, None if that is not offered."""
        return self.address.tls_url

    @property
    def ca_file(self) -> Path | None:
        """What to verify the broker's certificate with; None means the system's authorities."""
        return self.address.ca_file

    @property
    def management_url(self) -> str | None:
        """The base of the management API, without credentials; None if it is not known."""
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
    """A broker that someone else runs: it is used, never started, wiped nor stopped."""

    def __init__(self, url: str, management_url: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
            raise SetupError("RABBITMQ_URL must be amqp[s]://USER:PASSWORD@HOST[:PORT][/VIRTUAL_HOST]")
        self._address = BrokerAddress(url, url if parts.scheme == "amqps" else None, None, management_url)
        self._host = parts.hostname
        self._port = parts.port or DEFAULT_PORTS[parts.scheme]

    @property
    def address(self) -> BrokerAddress:
        """The URLs as they were given."""
        return self._address

    def is_running(self) -> bool:
        """Tell whether something listens there."""
        try:
            socket.create_connection((self._host, self._port), timeout=REQUEST_SECONDS).close()
        except OSError:
            return False
        return True

    def start(self, *, fresh: bool = False) -> None:
        """Check that the broker is there."""
        if not self.is_running():
            raise SetupError(f"no broker answers at {self._host}:{self._port} (RABBITMQ_URL)")

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Leave the broker alone."""


class LocalBroker(Broker):
    """A broker of our own, kept in a directory: its state, its configuration, its ports, its logs.

    It has its own node name, Erlang cookie and epmd, and listens on loopback only; `hosts` are further names and
    addresses of its certificate, under which clients reach it that are not on this machine.
    """

    def __init__(
        self, directory: Path, statistics_seconds: int = STATISTICS_SECONDS, hosts: Sequence[str] = ()
    ) -> None:
        self.statistics_seconds = statistics_seconds
        self._hosts = (LOOPBACK, "localhost", *hosts)
        self.directory = directory.absolute()
        self._authority_file = self.directory / "keys" / "ca.crt"
        self._password_file = self.directory / "password"
        self._ports = Ports(self.directory)
        self._epmd = Process(self.directory, "epmd")
        self._server = Process(self.directory, "rabbitmq")
        self.processes = (self._epmd, self._server)
        """In the order in which they start."""

    @property
    def address(self) -> BrokerAddress:
        """Where the broker is, once it has been started; a restart may change a port that was taken since."""
        credentials = f"{USER}:{self._password_file.read_text()}"
        return BrokerAddress(
            url=f"amqp://{credentials}@{LOOPBACK}:{self._ports['amqp']}/{VIRTUAL_HOST}",
            tls_url=f"amqps://{credentials}@{LOOPBACK}:{self._ports['amqps']}/{VIRTUAL_HOST}",
            ca_file=self._authority_file,
            management_url=f"http://{LOOPBACK}:{self._ports['management']}",
        )

    def is_running(self) -> bool:
        """Tell whether the broker's processes run; it may not be ready yet."""
        return all(process.is_alive() for process in self.processes)

    def start(self, *, fresh: bool = False) -> None:
        """Start the broker unless it runs, and wait until it is ready; `fresh` starts without state.

        Raises:
            SetupError: RabbitMQ is not installed, or did not become ready.
        """
        with locked(self.directory.with_name(f"{self.directory.name}.lock")):
            if fresh:
                self._stop(grace_seconds=0)
                shutil.rmtree(self.directory, ignore_errors=True)
            if self.is_running() and self._is_ready():
                return
            ensure_packages(PACKAGES)
            with step("starting RabbitMQ"):
                self._start()

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Stop the broker; the state stays. Without grace it is killed."""
        with locked(self.directory.with_name(f"{self.directory.name}.lock")):
            self._stop(grace_seconds)

    def _start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self._epmd.is_alive():
            self._server.kill()  # It would be registered nowhere.
            port = self._ports.reserve("epmd")
            self._epmd.start(["epmd", "-port", str(port), "-address", LOOPBACK])
            self._epmd.wait_ready(lambda: is_listening(port), READY_SECONDS)
        if not self._server.is_alive():
            for name in ("amqp", "amqps", "management", "distribution"):
                self._ports.reserve(name)
            self._write_configuration()
            self._server.start([SERVER], self._environment())
        self._server.wait_ready(self._is_ready, READY_SECONDS)

    def _stop(self, grace_seconds: float) -> None:
        for process in reversed(self.processes):
            process.stop(grace_seconds)

    def _write_configuration(self) -> None:
        if not self._password_file.exists():
            write_whole(self._password_file, secrets.token_urlsafe(24), private=True)
        serving = CertificateAuthority(self._authority_file.parent, "ca").issue_server("rabbitmq", self._hosts)
        settings = {
            "listeners.tcp.loopback": f"{LOOPBACK}:{self._ports['amqp']}",
            "listeners.ssl.loopback": f"{LOOPBACK}:{self._ports['amqps']}",
            "ssl_options.cacertfile": self._authority_file,
            "ssl_options.certfile": serving.certificate,
            "ssl_options.keyfile": serving.key,
            "ssl_options.verify": "verify_none",
            "management.tcp.ip": LOOPBACK,
            "management.tcp.port": self._ports["management"],
            # These are made when the state is empty; the user `guest` then does not exist.
            "default_vhost": VIRTUAL_HOST,
            "default_user": USER,
            "default_pass": self._password_file.read_text(),
            "heartbeat": HEARTBEAT_SECONDS,
            "collect_statistics_interval": self.statistics_seconds * 1000,
            # The defaults, but for the histories of each channel, which nobody reads: at every 5 s, those of 10,000
            # workers take a third of a core.
            "management.sample_retention_policies.global.minute": 5,
            "management.sample_retention_policies.basic.minute": 5,
            "management.sample_retention_policies.detailed.hour": 60,
            "disk_free_limit.absolute": MINIMUM_FREE_DISK,
            # A pool's workers all connect at once.
            "tcp_listen_options.backlog": 4096,
            "log.console": "true",
            "log.file": "false",
        }
        lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
        write_whole(self.directory / "rabbitmq.conf", lines, private=True)
        write_whole(self.directory / "enabled_plugins", f"[{','.join(PLUGINS)}].\n")
        # Erlang looks up `localhost` here, and never asks a name server, which may take seconds not to answer.
        write_whole(self.directory / "inetrc", '{lookup, [file]}.\n{host, {127,0,0,1}, ["localhost"]}.\n')

    def _environment(self) -> dict[str, str]:
        """Give the environment variables of the server: none of the system's RabbitMQ, all of this one's."""
        node = hashlib.sha256(str(self.directory).encode()).hexdigest()[:12]
        state = self.directory / "state"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))}
        return inherited | {
            "HOME": str(self.directory),  # where the Erlang cookie is
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_EPMD_PORT": str(self._ports["epmd"]),
            "ERL_INETRC": str(self.directory / "inetrc"),
            "RABBITMQ_NODENAME": f"simyard-{node}@localhost",
            "RABBITMQ_DIST_PORT": str(self._ports["distribution"]),
            "RABBITMQ_CONF_ENV_FILE": str(self.directory / "no-rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.directory / "no-advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(state),
            "RABBITMQ_LOG_BASE": str(state),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 -kernel inet_dist_use_interface {127,0,0,1}",
            # The script then becomes the Erlang machine, so that signals and the pid file reach the right process.
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    def _is_ready(self) -> bool:
        return self._speaks_amqp() and self._knows_us()

    def _speaks_amqp(self) -> bool:
        with contextlib.suppress(OSError), self._connection() as connection:
            connection.sendall(PROTOCOL_HEADER)
            return connection.recv(1) == METHOD_FRAME
        return False

    def _connection(self) -> socket.socket:
        return socket.create_connection((LOOPBACK, self._ports["amqp"]), timeout=REQUEST_SECONDS)

    def _knows_us(self) -> bool:
        """Tell whether the management API answers, and to the administrator."""
        authorization = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        connection = http.client.HTTPConnection(LOOPBACK, self._ports["management"], timeout=REQUEST_SECONDS)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
            connection.request("GET", "/api/whoami", headers={"Authorization": f"Basic {authorization}"})
            return connection.getresponse().status == http.HTTPStatus.OK
        return False


def open_broker(
    directory: Path, environment: Mapping[str, str] = os.environ, statistics_seconds: int = STATISTICS_SECONDS
) -> Broker:
    """Give the broker that RABBITMQ_URL names, with RABBITMQ_MANAGEMENT_URL if set; else one of our own."""
    url = environment.get("RABBITMQ_URL")
    if url:
        return ExistingBroker(url, environment.get("RABBITMQ_MANAGEMENT_URL") or None)
    return LocalBroker(directory, statistics_seconds)
