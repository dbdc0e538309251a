# SPDX-License-Identifier: Apache-2.0
"""Run a RabbitMQ from Debian's package on loopback: one broker, or a cluster of three nodes.

This broker is independent of the system's RabbitMQ: it has its own state, cookie, epmd and ports.
"""

import base64
import contextlib
import hashlib
import http.client
import json
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simyard_adapter.limits import MAX_BROKER_MESSAGE_BYTES
from simyard_dev.broker import GRACE_SECONDS, REQUEST_SECONDS, STATISTICS_SECONDS, Broker, BrokerAddress, ExistingBroker
from simyard_dev.certificates import CertificateAuthority
from simyard_dev.errors import SetupError
from simyard_dev.files import locked, write_whole
from simyard_dev.packages import ensure_packages
from simyard_dev.ports import LOOPBACK, Ports, is_listening
from simyard_dev.processes import POLL_SECONDS, Process
from simyard_dev.progress import step

PACKAGES = ("rabbitmq-server",)
# /usr/sbin/rabbitmq-server would change to the user `rabbitmq`.
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
CONTROL = SERVER.with_name("rabbitmqctl")
PLUGINS = ("rabbitmq_management", "rabbitmq_event_exchange")
VIRTUAL_HOST = "simyard"
USER = "simyard-admin"
READY_SECONDS = 300.0
HEARTBEAT_SECONDS = 30
NET_TICK_SECONDS = 6
"""Time without a message after which a node counts as lost by the cluster, with an error of a quarter."""
MINIMUM_FREE_DISK = "100MB"
# The header that a client sends first, and the type of the broker's answer frame (AMQP 0-9-1, 4.2.2, 4.2.3).
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD_FRAME = b"\x01"


def make_node_name(directory: Path) -> str:
    """Return the Erlang name of the node whose state is in the directory."""
    return f"simyard-{hashlib.sha256(str(directory).encode()).hexdigest()[:12]}@localhost"


@dataclass(frozen=True)
class Membership:
    """The cluster of a node: its directory, and the directories of all its nodes."""

    directory: Path
    nodes: tuple[Path, ...]

    def build_settings(self) -> dict[str, str | int | Path]:
        """Return the settings that decide what happens when a node is lost; they equal the chart's."""
        return {
            "cluster_partition_handling": "pause_minority",
            "net_ticktime": NET_TICK_SECONDS,
            **{
                f"cluster_formation.classic_config.nodes.{number}": make_node_name(directory)
                for number, directory in enumerate(self.nodes, 1)
            },
        }


class LocalBroker(Broker):
    """A broker that this class runs. Its directory contains state, configuration, ports and logs.

    The broker has its own node name, Erlang cookie and epmd, and listens on loopback only. `hosts` are further names
    and addresses for its certificate, for clients on other machines. With `cluster`, the broker is one node of a
    cluster; the nodes share cookie, epmd, password and CA.
    """

    def __init__(
        self,
        directory: Path,
        statistics_seconds: int = STATISTICS_SECONDS,
        hosts: Sequence[str] = (),
        cluster: "Membership | None" = None,
    ) -> None:
        self.statistics_seconds = statistics_seconds
        self._hosts = (LOOPBACK, "localhost", *hosts)
        self.directory = directory.absolute()
        self._cluster = cluster
        self._shared = cluster.directory if cluster else self.directory
        self._authority_file = self._shared / "keys" / "ca.crt"
        self._password_file = self._shared / "password"
        self._ports = Ports(self.directory)
        self._epmd_ports = Ports(self._shared)
        self._epmd = Process(self._shared, "epmd")
        self._server = Process(self.directory, "rabbitmq")
        self.processes = (self._server,) if cluster else (self._epmd, self._server)
        """The processes in the order of their start."""

    @property
    def address(self) -> BrokerAddress:
        """The URLs of the broker. A restart changes a port if another program uses it meanwhile."""
        credentials = f"{USER}:{self._password_file.read_text()}"
        return BrokerAddress(
            url=f"amqp://{credentials}@{LOOPBACK}:{self._ports['amqp']}/{VIRTUAL_HOST}",
            tls_url=f"amqps://{credentials}@{LOOPBACK}:{self._ports['amqps']}/{VIRTUAL_HOST}",
            ca_file=self._authority_file,
            management_url=f"http://{LOOPBACK}:{self._ports['management']}",
        )

    def is_running(self) -> bool:
        """Return whether the broker's processes run; the broker may not be ready yet."""
        return all(process.is_alive() for process in self.processes)

    def start(self, *, fresh: bool = False) -> None:
        """Start the broker unless it runs, and wait until it is ready; `fresh` removes its old state.

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
                self.launch()
                self._server.wait_ready(self._is_ready, READY_SECONDS)

    def send_signal(self, number: int) -> None:
        """Send a signal to the server process, such as SIGSTOP."""
        if identity := self._server.identity:
            os.kill(identity.pid, number)

    def run_rabbitmqctl(self, *arguments: str) -> None:
        """Run `rabbitmqctl` for this node.

        Raises:
            SetupError: the command failed.
        """
        command: list[str | Path] = [CONTROL, "-n", make_node_name(self.directory), *arguments]
        done = subprocess.run(command, env=self._environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise SetupError(f"rabbitmqctl {arguments[0]} failed: {done.stderr or done.stdout}")

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Stop the broker and keep its state; a grace period of 0 kills it."""
        with locked(self.directory.with_name(f"{self.directory.name}.lock")):
            self._stop(grace_seconds)

    def launch(self) -> None:
        """Start the processes that do not run, without waiting until they are ready."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self._epmd.is_alive():
            self._server.kill()  # A new epmd does not know a server that registered with the old one.
            port = self._epmd_ports.reserve("epmd")
            self._epmd.start(["epmd", "-port", str(port), "-address", LOOPBACK])
            self._epmd.wait_ready(lambda: is_listening(port), READY_SECONDS)
        if not self._server.is_alive():
            for name in ("amqp", "amqps", "management", "distribution"):
                self._ports.reserve(name)
            self._write_configuration()
            self._server.start([SERVER], self._environment())

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
            # RabbitMQ creates these when its state is empty; the user `guest` does not exist then.
            "default_vhost": VIRTUAL_HOST,
            "default_user": USER,
            "default_pass": self._password_file.read_text(),
            "heartbeat": HEARTBEAT_SECONDS,
            "collect_statistics_interval": self.statistics_seconds * 1000,
            # These are the defaults without the history of each channel, which nothing reads. Updated every 5 s, the
            # histories of 10,000 workers take a third of a core.
            "management.sample_retention_policies.global.minute": 5,
            "management.sample_retention_policies.basic.minute": 5,
            "management.sample_retention_policies.detailed.hour": 60,
            "disk_free_limit.absolute": MINIMUM_FREE_DISK,
            "max_message_size": MAX_BROKER_MESSAGE_BYTES,
            # All workers of a pool connect at once.
            "tcp_listen_options.backlog": 4096,
            "log.console": "true",
            "log.file": "false",
        }
        if self._cluster is not None:
            settings |= self._cluster.build_settings()
        lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
        write_whole(self.directory / "rabbitmq.conf", lines, private=True)
        write_whole(self.directory / "enabled_plugins", f"[{','.join(PLUGINS)}].\n")
        # Erlang resolves `localhost` with this file. A name server could take seconds to answer.
        write_whole(self.directory / "inetrc", '{lookup, [file]}.\n{host, {127,0,0,1}, ["localhost"]}.\n')

    def _environment(self) -> dict[str, str]:
        """Return the environment variables of the server, without the variables of the system's RabbitMQ."""
        state = self.directory / "state"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))}
        return inherited | {
            "HOME": str(self._shared),  # the Erlang cookie is here
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_EPMD_PORT": str(self._epmd_ports["epmd"]),
            "ERL_INETRC": str(self.directory / "inetrc"),
            "RABBITMQ_NODENAME": make_node_name(self.directory),
            "RABBITMQ_DIST_PORT": str(self._ports["distribution"]),
            "RABBITMQ_CONF_ENV_FILE": str(self.directory / "no-rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.directory / "no-advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(state),
            "RABBITMQ_LOG_BASE": str(state),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 -kernel inet_dist_use_interface {127,0,0,1}",
            # The script replaces itself by the Erlang VM, so signals and the pid file mean the right process.
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

    def count_running_nodes(self) -> int:
        """Return the number of running nodes that this node sees in the cluster; 0 if the node does not answer."""
        return sum(bool(node.get("running")) for node in self._ask("nodes") or ())

    def _knows_us(self) -> bool:
        """Return true if the management API accepts the password of the administrator."""
        return self._ask("whoami") is not None

    def _ask(self, path: str) -> Any:
        """Return the JSON that the management API sends; None unless the status is 200."""
        authorization = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        connection = http.client.HTTPConnection(LOOPBACK, self._ports["management"], timeout=REQUEST_SECONDS)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
            connection.request("GET", f"/api/{path}", headers={"Authorization": f"Basic {authorization}"})
            answer = connection.getresponse()
            return json.load(answer) if answer.status == http.HTTPStatus.OK else None
        return None


class LocalCluster:
    """A broker of three nodes, each with its own ports."""

    def __init__(self, directory: Path, nodes: int = 3) -> None:
        self.directory = directory.absolute()
        folders = tuple(self.directory / f"node-{number}" for number in range(nodes))
        membership = Membership(self.directory, folders)
        self.nodes = tuple(LocalBroker(folder, cluster=membership) for folder in folders)
        self._epmd = Process(self.directory, "epmd")

    def start(self) -> None:
        """Start the nodes that do not run, all at once, and wait until they form a cluster.

        Raises:
            SetupError: RabbitMQ is not installed, or a node did not become ready.
        """
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        cookie = self.directory / ".erlang.cookie"
        if not cookie.exists():
            write_whole(cookie, secrets.token_hex(16), private=True)
        ensure_packages(PACKAGES)
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.start()
        deadline = time.monotonic() + READY_SECONDS
        while not all(node.count_running_nodes() == len(self.nodes) for node in self.nodes):
            if time.monotonic() > deadline:
                raise SetupError(
                    f"the nodes in {self.directory} formed no cluster in {READY_SECONDS:.0f} s: see */rabbitmq.log"
                )
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """Kill all nodes and keep their state."""
        for node in self.nodes:
            node.stop(grace_seconds=0)
        self._epmd.kill()


def open_broker(
    directory: Path, environment: Mapping[str, str] = os.environ, statistics_seconds: int = STATISTICS_SECONDS
) -> Broker:
    """Return the broker of RABBITMQ_URL (and RABBITMQ_MANAGEMENT_URL) if it is set, else a broker that we run."""
    url = environment.get("RABBITMQ_URL")
    if url:
        return ExistingBroker(url, environment.get("RABBITMQ_MANAGEMENT_URL") or None)
    return LocalBroker(directory, statistics_seconds)
