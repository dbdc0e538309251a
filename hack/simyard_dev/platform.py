# SPDX-License-Identifier: Apache-2.0
"""Run the platform's own processes in an environment, each with its own account."""

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from simyard.api import names
from simyard.manifests import apiservice, install
from simyard_dev import tools
from simyard_dev.certificates import CertificateAuthority
from simyard_dev.environment import Environment
from simyard_dev.files import write_whole
from simyard_dev.frontends import ACCOUNT, NAMESPACE, SIMYARD, Frontends
from simyard_dev.ports import LOOPBACK, Ports
from simyard_dev.processes import Process
from simyard_dev.progress import step

READY_SECONDS = 240.0
GRACE_SECONDS = 10.0
CLOUD_SECONDS = 60.0


class Platform:
    """The processes that `make dev-up` adds to control plane and broker.

    Operator and apiserver run as in a cluster: each has its own ServiceAccount with its own RBAC and reaches the broker
    over TLS.

    Args:
        environment: the control plane and the broker.
        operator_command: the command ``simyard`` of the operator; a profiler may wrap it.
        occi: whether OCCI frontends run too.
        namespace: the namespace that the frontends serve; it must exist.
        operator_server: the URL under which the operator reaches the API server, if a proxy stands in between.
    """

    def __init__(
        self,
        environment: Environment,
        operator_command: Sequence[str | Path] = (SIMYARD,),
        *,
        occi: bool = False,
        namespace: str = NAMESPACE,
        operator_server: str | None = None,
    ) -> None:
        self._operator_server = operator_server
        self.environment = environment
        self.directory = environment.directory / "platform"
        self.emulated = environment.directory / "emulated"
        self.operator = Process(self.directory, "operator")
        self.apiserver = Process(self.directory, "apiserver")
        self.optimiser = Process(self.directory, "optimiser")
        self._operator_command = operator_command
        self._ports = Ports(self.directory)
        self._keys = self.directory / "keys"
        self.frontends = Frontends(environment, self.directory, self._ports, namespace)
        self._occi = occi

    def up(self) -> None:
        """Install CRDs, RBAC and policies, and start the processes that do not run.

        Raises:
            SetupError: a process did not become ready; the message contains the end of its log.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self.apiserver.is_alive():
            self._ports.reserve("apiserver")
            self._ports.reserve("apiserver-metrics")
        if not self.operator.is_alive():
            self._ports.reserve("operator-metrics")
        if not self.optimiser.is_alive():
            self._ports.reserve("optimiser-metrics")
        if self._occi:
            self.frontends.reserve()
        with step("installing Simyard"):
            self._install()
        with step("starting the operator, the aggregated apiserver and the optimiser"):
            self._start_operator()
            self._start_apiserver()
            self._start_optimiser()
            self.operator.wait_ready(lambda: self._answers("operator-metrics"), READY_SECONDS)
            self.apiserver.wait_ready(lambda: self._answers("apiserver-metrics"), READY_SECONDS)
            self.optimiser.wait_ready(lambda: self._answers("optimiser-metrics"), READY_SECONDS)
            self._kubectl("wait", f"apiservice/{self._api_service}", "--for=condition=Available", "--timeout=240s")
        if self._occi:
            with step("starting the OCCI frontends"):
                self._start_frontends()
        self._link_commands()

    def down(self) -> None:
        """Stop the processes, and the emulated clouds with their machines."""
        for process in (*self.frontends.processes, self.optimiser, self.apiserver, self.operator):
            process.stop(GRACE_SECONDS)
        for cloud in self.emulated.glob("*"):
            command = [sys.executable, "-m", "simyard_sites.emulated", "stop", "--directory", str(cloud)]
            subprocess.run(command, capture_output=True, timeout=CLOUD_SECONDS, check=False)

    @property
    def _api_service(self) -> str:
        return f"{names.VERSION}.{names.SUBRESOURCES_GROUP}"

    def _install(self) -> None:
        authority = CertificateAuthority(self._keys, "serving-ca")
        if not self.apiserver.is_alive():
            authority.issue_server("apiserver", [apiservice.get_host(names.SYSTEM_NAMESPACE), "localhost", LOOPBACK])
        endpoint = apiservice.Endpoint(authority.files.certificate.read_bytes(), self._ports["apiserver"])
        objects = install.build_objects(names.SYSTEM_NAMESPACE, endpoint)
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self._kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)
        crds = [item["metadata"]["name"] for item in objects if item["kind"] == "CustomResourceDefinition"]
        self._kubectl("wait", "--for=condition=Established", "--timeout=240s", "crd", *crds)

    def _start_operator(self) -> None:
        broker = self.environment.broker
        self.operator.start(
            [
                *self._operator_command,
                "operator",
                f"--kubeconfig={self._kubeconfig(names.OPERATOR, self._operator_server)}",
                f"--metrics-port={self._ports['operator-metrics']}",
                *(["--occi-amqp", f"--occi-endpoint={self.frontends.endpoint}"] if self._occi else []),
            ],
            {
                **os.environ,
                "AMQP_URL": broker.tls_url or broker.url,
                "AMQP_MANAGEMENT_URL": broker.management_url or "",
                **({"AMQP_CA_FILE": str(broker.ca_file)} if broker.ca_file else {}),
                "AMQP_STATISTICS_SECONDS": str(broker.statistics_seconds),
                "SIMYARD_EMULATED_DIR": str(self.emulated),
                "SIMYARD_FILES_DIRECTORY": str(self.environment.files.access),
            },
        )

    def _start_apiserver(self) -> None:
        self.apiserver.start(
            [
                SIMYARD,
                "apiserver",
                f"--kubeconfig={self._kubeconfig(names.APISERVER)}",
                f"--bind={LOOPBACK}",
                f"--port={self._ports['apiserver']}",
                f"--metrics-port={self._ports['apiserver-metrics']}",
                f"--tls-cert={self._keys / 'apiserver.crt'}",
                f"--tls-key={self._keys / 'apiserver.key'}",
                f"--files-directory={self.environment.files.access}",
            ],
            dict(os.environ),
        )

    def _start_optimiser(self) -> None:
        self.optimiser.start(
            [
                SIMYARD,
                "optimiser",
                f"--kubeconfig={self._kubeconfig(names.OPTIMISER)}",
                f"--metrics-port={self._ports['optimiser-metrics']}",
                f"--files-directory={self.environment.files.access}",
            ],
            dict(os.environ),
        )

    def _start_frontends(self) -> None:
        authority = CertificateAuthority(self._keys, "serving-ca")
        self.frontends.make_accounts()
        self.frontends.start(authority, self._kubeconfig(ACCOUNT))
        self.frontends.wait_ready(READY_SECONDS)
        self.environment.write_variables(self.frontends.make_variables(authority))

    def _link_commands(self) -> None:
        """Make `bin/` with kubectl, its plugin and the plugin's completion, for the user's PATH."""
        commands = self.environment.directory / "bin"
        commands.mkdir(exist_ok=True)
        plugin = (SIMYARD.with_name(name) for name in ("kubectl-simyard", "kubectl_complete-simyard"))
        for target in (*plugin, tools.ensure(["kubectl"])["kubectl"]):
            link = commands / target.name
            link.unlink(missing_ok=True)
            link.symlink_to(target)

    def _kubeconfig(self, account: str, server: str | None = None) -> Path:
        path = self.directory / f"{account}.kubeconfig"
        control_plane = self.environment.control_plane
        control_plane.write_service_account_kubeconfig(path, names.SYSTEM_NAMESPACE, account)
        if server is not None:
            write_whole(path, path.read_bytes().replace(control_plane.server.encode(), server.encode()), private=True)
        return path

    def _kubectl(self, *arguments: str, stdin: str = "") -> str:
        return self.environment.control_plane.kubectl(*arguments, stdin=stdin)

    def _answers(self, port: str) -> bool:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://{LOOPBACK}:{self._ports[port]}/readyz", timeout=5) as answer,
        ):
            return bool(answer.status == 200)
        return False
