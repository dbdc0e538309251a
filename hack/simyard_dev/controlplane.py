# SPDX-License-Identifier: Apache-2.0
"""Run a Kubernetes control plane on loopback: etcd, kube-apiserver and kube-controller-manager, without nodes."""

import contextlib
import http.client
import shutil
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path

from simyard_dev import tools
from simyard_dev.certificates import CertificateAuthority, KeyPair, write_signing_key
from simyard_dev.errors import SetupError
from simyard_dev.files import locked
from simyard_dev.kubeconfig import write_kubeconfig
from simyard_dev.ports import LOOPBACK, Ports
from simyard_dev.processes import Process
from simyard_dev.progress import step

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
READY_SECONDS = 300.0
GRACE_SECONDS = 10.0
REQUEST_SECONDS = 5.0
KUBECTL_SECONDS = 300.0

# These controllers only make sense with nodes, volumes or a cloud. An environment may hold nodes that kwok emulates;
# the node lifecycle controller would declare them dead under load.
DISABLED_CONTROLLERS = (
    "node-lifecycle-controller",
    "taint-eviction-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-expander-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
    "ephemeral-volume-controller",
    "volumeattributesclass-protection-controller",
)


class ControlPlane:
    """A control plane; its directory holds state, keys, ports, logs and pid files.

    The class adopts processes that run already, no matter which process started them. Aggregated APIs are reached
    through a Service of type ExternalName `localhost`. etcd speaks plain HTTP on loopback and does not wait for the
    disk: the control plane is for development and tests, on a machine whose users trust each other.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.kubeconfig = self.directory / "kubeconfig"
        """Kubeconfig of the administrator (group system:masters)."""
        self._keys = self.directory / "keys"
        self._ports = Ports(self.directory)
        self._etcd = Process(self.directory, "etcd")
        self._apiserver = Process(self.directory, "kube-apiserver")
        self._controllers = Process(self.directory, "kube-controller-manager")
        self.processes = (self._etcd, self._apiserver, self._controllers)
        """The processes in the order of their start."""

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://{LOOPBACK}:{self._ports['kube-apiserver']}"

    @property
    def authority(self) -> Path:
        """The PEM file of the certificate authority of the API server."""
        return self._keys / "ca.crt"

    def is_running(self) -> bool:
        """Return whether all processes run; they may not be ready yet."""
        return all(process.is_alive() for process in self.processes)

    def start(self, *, fresh: bool = False) -> None:
        """Start the processes that do not run, and wait until all are ready; `fresh` starts an empty cluster.

        Raises:
            SetupError: a program is missing, or a process did not become ready.
        """
        with locked(self.directory.with_name(f"{self.directory.name}.lock")):
            if fresh:
                self._stop(grace_seconds=0)
                shutil.rmtree(self.directory, ignore_errors=True)
            if self.is_running() and self._is_ready():
                return
            programs = tools.ensure(PROGRAMS)
            with step("starting the control plane"):
                self._start(programs)

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Stop all processes and keep their state; a grace period of 0 kills them."""
        with locked(self.directory.with_name(f"{self.directory.name}.lock")):
            self._stop(grace_seconds)

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl as administrator and return its output.

        Raises:
            SetupError: kubectl failed; the message contains its error output.
        """
        kubectl = tools.ensure(["kubectl"])["kubectl"]
        result = subprocess.run(
            [kubectl, f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=KUBECTL_SECONDS,
            check=False,
        )
        if result.returncode:
            raise SetupError(f"kubectl {' '.join(arguments)}: {result.stderr.strip()}")
        return result.stdout

    def write_service_account_kubeconfig(
        self, path: Path, namespace: str, service_account: str, *, lifetime_hours: int = 8760
    ) -> None:
        """Write a kubeconfig (mode 0600) with a token of the ServiceAccount, so that RBAC applies as in production.

        Raises:
            SetupError: the ServiceAccount does not exist.
        """
        token = self.kubectl(
            "create", "token", service_account, f"--namespace={namespace}", f"--duration={lifetime_hours}h"
        )
        write_kubeconfig(path, server=self.server, authority=self.authority, user=token.strip(), namespace=namespace)

    def _start(self, programs: Mapping[str, Path]) -> None:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self._etcd.is_alive():
            self._apiserver.stop(GRACE_SECONDS)  # it may wait for minutes for an etcd that was away
            client, peer = self._ports.reserve("etcd"), self._ports.reserve("etcd-peer")
            self._etcd.start([programs["etcd"], *_etcd_flags(self.directory / "etcd", client, peer)])
        if not self._apiserver.is_alive():
            self._start_apiserver(programs["kube-apiserver"])
        self._apiserver.wait_ready(self._serves, READY_SECONDS)
        if not self._controllers.is_alive():
            self._controllers.start([programs["kube-controller-manager"], *self._controller_flags()])
        self._controllers.wait_ready(self._is_ready, READY_SECONDS)

    def _start_apiserver(self, program: Path) -> None:
        port = self._ports.reserve("kube-apiserver")
        authority = CertificateAuthority(self._keys, "ca")
        hosts = (LOOPBACK, "localhost", "kubernetes.default.svc", "10.0.0.1")
        serving = authority.issue_server("kube-apiserver", hosts)
        front_proxy = CertificateAuthority(self._keys, "front-proxy-ca")
        proxy = front_proxy.issue_client("front-proxy-client", "front-proxy-client")
        write_signing_key(self._keys / "service-accounts.key")
        users = {
            self.kubeconfig: authority.issue_client("admin", "simyard-admin", ["system:masters"]),
            self._controller_kubeconfig: authority.issue_client(
                "kube-controller-manager", "system:kube-controller-manager"
            ),
        }
        for path, user in users.items():
            write_kubeconfig(path, server=self.server, authority=self.authority, user=user)
        self._apiserver.start([program, *self._apiserver_flags(port, serving, front_proxy.files, proxy)])

    def _apiserver_flags(self, port: int, serving: KeyPair, front_proxy: KeyPair, proxy: KeyPair) -> list[str]:
        return [
            f"--etcd-servers=http://{LOOPBACK}:{self._ports['etcd']}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={port}",
            # Without this flag kube-apiserver looks for a default route, which a machine may lack. Loopback cannot be
            # an endpoint of the Service `kubernetes`, and nothing here needs that Service.
            f"--advertise-address={LOOPBACK}",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={self.authority}",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._keys / 'service-accounts.key'}",
            f"--service-account-signing-key-file={self._keys / 'service-accounts.key'}",
            f"--requestheader-client-ca-file={front_proxy.certificate}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={proxy.certificate}",
            f"--proxy-client-key-file={proxy.key}",
            "--max-requests-inflight=2000",
            "--max-mutating-requests-inflight=1000",
        ]

    def _controller_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self._controller_kubeconfig}",
            f"--controllers=*,{','.join(f'-{name}' for name in DISABLED_CONTROLLERS)}",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self._keys / 'service-accounts.key'}",
            f"--root-ca-file={self.authority}",
            "--leader-elect=false",
            "--secure-port=0",
            # The default of 20 requests per second is made for large clusters of many tenants. Here it would limit the
            # deletion of a large pool.
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
        ]

    @property
    def _controller_kubeconfig(self) -> Path:
        return self._keys / "kube-controller-manager.kubeconfig"

    def _stop(self, grace_seconds: float) -> None:
        for process in reversed(self.processes):
            process.stop(grace_seconds)

    def _serves(self) -> bool:
        return self._answers("/readyz")

    def _is_ready(self) -> bool:
        """Return whether the API server is ready and the default namespace has its ServiceAccount."""
        return self._serves() and self._answers("/api/v1/namespaces/default/serviceaccounts/default")

    def _answers(self, path: str) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            context = ssl.create_default_context(cafile=str(self.authority))
            context.load_cert_chain(self._keys / "admin.crt", self._keys / "admin.key")
            connection = http.client.HTTPSConnection(
                LOOPBACK, self._ports["kube-apiserver"], timeout=REQUEST_SECONDS, context=context
            )
            with contextlib.closing(connection):
                connection.request("GET", path)
                return connection.getresponse().status == http.HTTPStatus.OK
        return False


def _etcd_flags(data: Path, client_port: int, peer_port: int) -> list[str]:
    client, peer = f"http://{LOOPBACK}:{client_port}", f"http://{LOOPBACK}:{peer_port}"
    return [
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]
