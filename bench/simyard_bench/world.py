# SPDX-License-Identifier: Apache-2.0
"""Run the environment of a benchmark: a control plane, a broker and the platform, without state of earlier runs."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import platform
import ssl
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from kube_api import Api
from simyard.api import names
from simyard.api.base import Json
from simyard_bench import machine, workload, writes
from simyard_bench.waiting import Waiting
from simyard_dev import tools
from simyard_dev.environment import Environment
from simyard_dev.errors import SetupError
from simyard_dev.frontends import SIMYARD
from simyard_dev.local_broker import LocalBroker
from simyard_dev.platform import Platform
from simyard_dev.ports import LOOPBACK, Ports
from simyard_sites.kubernetes.resource import Resource

REQUEST_SECONDS = 30
PREPARE_SECONDS = 60
LIST_PAGE = 1000
GUESTS = "emulated cloud and guests"
"""The name of the measured process that has all guests as its children."""


class World:
    """An environment below a directory, with the real processes of the platform; the administrator measures it.

    With ``occi``, OCCI frontends run too.
    """

    def __init__(
        self, directory: Path, operator_command: Sequence[str | Path] = (SIMYARD,), *, occi: bool = False
    ) -> None:
        self.environment = Environment(directory)
        self.platform = Platform(self.environment, operator_command, occi=occi, namespace=workload.NAMESPACE)

    def up(self) -> None:
        """Start all servers.

        Raises:
            SetupError: a server did not become ready.
        """
        self.environment.up(fresh=True)
        self.api.install([workload.namespace()])
        self.platform.up()

    def down(self) -> None:
        """Stop all servers."""
        self.platform.down()
        self.environment.down()

    @property
    def api(self) -> Api:
        """A new connection of the administrator; the API server closes connections that were idle for 90 s."""
        return Api(self.environment.kubeconfig)

    @property
    def operator_pid(self) -> int:
        """The pid of the operator.

        Raises:
            SetupError: the operator has ended; the message contains the end of its log.
        """
        identity = self.platform.operator.identity
        if identity is None:
            raise SetupError(f"the operator has ended.\n{self.platform.operator.log_tail()}")
        return identity.pid

    def check(self) -> None:
        """Check that the operator runs.

        Raises:
            SetupError: the operator has ended.
        """
        _ = self.operator_pid

    def prepare(self, load: workload.Load, program: Path = workload.PROGRAM) -> None:
        """Create service, site and pool, and wait until the pool could start; its workers run ``program``.

        Raises:
            SetupError: an object did not become ready; the message contains the end of the log of the operator.
        """
        self.api.install(workload.objects(load, program))
        namespace = f"--namespace={workload.NAMESPACE}"
        for target in (
            (f"cloudsite/{workload.NAME}", "--for=condition=Ready"),
            (namespace, f"simulationservice/{workload.NAME}", "--for=condition=Available"),
            (namespace, f"workerpool/{workload.NAME}", "--for=jsonpath={.status.observedGeneration}=1"),
        ):
            try:
                self.environment.control_plane.kubectl("wait", *target, f"--timeout={PREPARE_SECONDS}s")
            except SetupError as problem:
                raise SetupError(f"{problem}\n{self.platform.operator.log_tail()}") from None

    def scale(self, n: int) -> None:
        """Ask for ``n`` workers.

        Raises:
            SetupError: the API server refused the change.
        """
        answer = self.api.patch(workload.pool_manifest(), {"spec": {"replicas": n}})
        if not answer.accepted:
            raise SetupError(f"the pool cannot be scaled: {answer.message}")

    def waiting(self, kind: Resource, condition: str, seconds: float) -> Waiting:
        """Return a ``kubectl wait`` for the pool or the site."""
        namespace = workload.NAMESPACE if kind.namespaced else ""
        target = f"{kind.kind.lower()}/{workload.NAME}"
        return Waiting(self.environment.kubeconfig, target, condition, seconds, namespace)

    def pool(self) -> Json:
        """Return the stored pool."""
        return self.api.get(workload.pool_manifest()).body

    def workers(self) -> list[Json]:
        """Return all Workers."""
        items: list[Json] = []
        path = f"/apis/{names.API_VERSION}/namespaces/{workload.NAMESPACE}/{names.WORKERS.plural}?limit={LIST_PAGE}"
        more = ""
        while True:
            page = self.api.request("GET", f"{path}&continue={more}" if more else path).body
            items += page["items"]
            more = page["metadata"].get("continue", "")
            if not more:
                return items

    def has_workers(self) -> bool:
        """Return whether a Worker is stored."""
        path = f"/apis/{names.API_VERSION}/namespaces/{workload.NAMESPACE}/{names.WORKERS.plural}?limit=1"
        return bool(self.api.request("GET", path).body["items"])

    def observe(self) -> writes.Observed:
        """Return all writes so far."""
        return writes.Observed(writes.parse_server_writes(self._server_metrics()), self.count_operator_writes())

    def count_operator_writes(self) -> writes.Counts:
        """Return the writes so far by the metrics of the operator."""
        return writes.parse_operator_writes(self.operator_metrics())

    def operator_metrics(self) -> str:
        """Return the metrics of the operator in the text format of Prometheus."""
        return self._metrics("operator-metrics")

    def apiserver_metrics(self) -> str:
        """Return the metrics of the aggregated apiserver in the text format of Prometheus."""
        return self._metrics("apiserver-metrics")

    def _metrics(self, name: str) -> str:
        port = Ports(self.platform.directory)[name]
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=REQUEST_SECONDS) as answer:
            return str(answer.read().decode())

    @property
    def administrator(self) -> ssl.SSLContext:
        """The TLS context that authenticates the administrator at the API server."""
        plane = self.environment.control_plane
        context = ssl.create_default_context(cafile=str(plane.authority))
        keys = plane.authority.parent
        context.load_cert_chain(keys / "admin.crt", keys / "admin.key")
        return context

    def _server_metrics(self) -> str:
        server, context = urlsplit(self.environment.control_plane.server), self.administrator
        connection = http.client.HTTPSConnection(
            str(server.hostname), server.port, timeout=REQUEST_SECONDS, context=context
        )
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()

    def processes(self) -> dict[str, int]:
        """Return the pids of the measured processes, by name."""
        broker = self.environment.broker
        named = {
            "operator": self.platform.operator,
            "aggregated apiserver": self.platform.apiserver,
            **{process.name: process for process in self.environment.control_plane.processes},
            **({process.name: process for process in broker.processes} if isinstance(broker, LocalBroker) else {}),
        }
        found = {name: identity.pid for name, process in named.items() if (identity := process.identity)}
        for file in self.platform.emulated.glob("*/pid"):
            found[GUESTS] = int(file.read_text())
        return found

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU seconds that these processes have used so far."""
        return machine.cpu_seconds(self.processes())

    def versions(self) -> dict[str, str]:
        """Return the versions of the programs that run."""
        return {
            "kubernetes": tools.KUBERNETES.version,
            "etcd": tools.ETCD.version,
            "kwok": tools.KWOK.version,
            "rabbitmq": self._broker_version(),
            "python": platform.python_version(),
        }

    def _broker_version(self) -> str:
        broker = self.environment.broker
        if broker.management_url is None:
            return "unknown"
        credentials = base64.b64encode(f"{broker.user}:{broker.password}".encode()).decode()
        connection = http.client.HTTPConnection(urlsplit(broker.management_url).netloc, timeout=REQUEST_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", "/api/overview", headers={"Authorization": f"Basic {credentials}"})
            return str(json.load(connection.getresponse())["rabbitmq_version"])
