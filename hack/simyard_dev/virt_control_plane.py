# SPDX-License-Identifier: Apache-2.0
"""Run KubeVirt's own control plane beside a development control plane: virt-api and virt-controller as processes.

Real: both programs, their definitions, webhooks, RBAC and the aggregated API ``subresources.kubevirt.io``, all as
virt-operator of the same release installs them, and kube-scheduler. Emulated: nodes and the phases of pods (kwok).
Absent: virt-operator, virt-handler, CDI and guests; ``simyard_simulators.virt.handler`` simulates virt-handler.
"""

import base64
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from simyard_dev import tools
from simyard_dev.certificates import CertificateAuthority
from simyard_dev.controlplane import ControlPlane
from simyard_dev.errors import SetupError
from simyard_dev.ports import LOOPBACK, Ports, is_listening
from simyard_dev.processes import Process
from simyard_dev.progress import step

NAMESPACE = "kubevirt"
"""KubeVirt's namespace; outside of a pod the programs accept no other namespace."""
READY_SECONDS = 240.0
GRACE_SECONDS = 10.0
NODE_LABEL = "simyard.dev/kwok"
DEVICES = ("kvm", "tun", "vhost-net")
MAX_PODS_PER_NODE = 250
HANDLER_NAME = "kubevirt.io:system:node:virt-handler"
"""The common name that virt-api expects in the certificate of a virt-handler."""
_CLIENT_NAME = "kubevirt.io:system:client:virt-handler"
_SERVICE = "virt-api"
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_OPERATOR_WEBHOOKS = "virt-operator-validator"
_DISK_KINDS = (
    ("DataVolume", "Namespaced"),
    ("DataSource", "Namespaced"),
    ("CDI", "Cluster"),
    ("CDIConfig", "Cluster"),
    ("StorageProfile", "Cluster"),
)
"""Kinds that virt-controller watches if CDI is installed."""

Manifest = dict[str, Any]


class VirtControlPlane:
    """The processes virt-api, virt-controller, kube-scheduler and kwok, for a control plane that runs already.

    With ``disks``, the API server also has substitutes for the definitions of CDI; no program creates disks.

    Attributes:
        handler_port: the loopback port at which virt-api looks for the virt-handler of every node.
        handler_kubeconfig: the kubeconfig of the account of virt-handler.
        handler_certificate: the serving certificate of virt-handler.
    """

    def __init__(self, directory: Path, control_plane: ControlPlane, *, nodes: int = 3, disks: bool = False) -> None:
        self._control_plane = control_plane
        self._nodes = nodes
        self._disks = disks
        self._keys = directory / "keys"
        self._authority = CertificateAuthority(self._keys, "kubevirt-ca")
        self._ports = Ports(directory)
        self._api = Process(directory, "virt-api")
        self._controller = Process(directory, "virt-controller")
        self._kwok = Process(directory, "kwok")
        self._scheduler = Process(directory, "kube-scheduler")
        self.processes = (self._kwok, self._scheduler, self._api, self._controller)
        self.handler_port = self._ports.reserve("virt-handler")
        self.handler_kubeconfig = directory / "virt-handler.kubeconfig"
        self.handler_certificate = self._authority.issue_server(HANDLER_NAME, [LOOPBACK])

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return tuple(f"node-{number}" for number in range(self._nodes))

    def start(self) -> None:
        """Install the objects that virt-operator would install, start all programs, and wait until they work.

        Raises:
            SetupError: a program is missing, or did not become ready.
        """
        if all(process.is_alive() for process in self.processes):
            return
        programs = tools.ensure([*tools.VIRT.packages, self._kwok.name, self._scheduler.name])
        with step(f"starting virt-api and virt-controller {tools.VIRT.version}"):
            items = read_manifests()
            self._install([item for item in items if item["kind"] == "CustomResourceDefinition"])
            self._install(self._foundation([item for item in items if item["kind"] in _ACCESS]))
            # virt-operator would write this status.
            deployed = json.dumps({"status": {"phase": "Deployed", "defaultArchitecture": "amd64"}})
            change = ["--subresource=status", "--type=merge", f"--patch={deployed}"]
            self._control_plane.kubectl("patch", "kubevirt", "kubevirt", f"--namespace={NAMESPACE}", *change)
            self._start_nodes(programs)
            self._start_programs(programs)
            self._install(self._connections(items))
            names = [item["metadata"]["name"] for item in items if item["kind"] == "APIService"]
            self._wait("Available", "apiservice", *names)

    def stop(self) -> None:
        """Stop all processes."""
        for process in reversed(self.processes):
            process.stop(0)

    @contextlib.contextmanager
    def silent_kubelets(self) -> Iterator[None]:
        """Stop the emulated kubelets while the block runs, so that deleted pods do not end."""
        kwok = self._kwok.identity
        if kwok is None:
            raise SetupError("kwok does not run: call start() first")
        os.kill(kwok.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(kwok.pid, signal.SIGCONT)

    def _install(self, items: list[Manifest]) -> None:
        if items:
            stdin = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
            self._control_plane.kubectl("apply", "--server-side", "--filename=-", stdin=stdin)
        definitions = [item["metadata"]["name"] for item in items if item["kind"] == "CustomResourceDefinition"]
        if definitions:
            self._wait("Established", "crd", *definitions)

    def _wait(self, condition: str, *what: str) -> None:
        self._control_plane.kubectl("wait", f"--for=condition={condition}", f"--timeout={READY_SECONDS:.0f}s", *what)

    def _foundation(self, access: list[Manifest]) -> list[Manifest]:
        """Return the namespace, the accounts with their rights, the authorities, and KubeVirt's configuration."""
        authority = {"ca-bundle": self._authority.files.certificate.read_text()}
        placed = {"namespace": NAMESPACE}
        return [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            *access,
            *(_free_definition(kind, scope) for kind, scope in (_DISK_KINDS if self._disks else ())),
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubevirt-ca", **placed}, "data": authority},
            {
                "apiVersion": "kubevirt.io/v1",
                "kind": "KubeVirt",
                "metadata": {"name": "kubevirt", **placed},
                "spec": {},
            },
        ]

    def _start_nodes(self, programs: Mapping[str, Path]) -> None:
        kubeconfig = self._control_plane.kubeconfig
        kwok = [
            f"--kubeconfig={kubeconfig}",
            f"--manage-nodes-with-label-selector={NODE_LABEL}",
            "--manage-all-nodes=false",
        ]
        # Pods in the network of the host, such as those of virt-handler, have the address of the node.
        self._kwok.start([programs["kwok"], *kwok, f"--node-ip={LOOPBACK}", "--node-lease-duration-seconds=40"])
        self._scheduler.start(
            [
                programs["kube-scheduler"],
                *(f"--{prefix}kubeconfig={kubeconfig}" for prefix in ("", "authentication-", "authorization-")),
                "--leader-elect=false",
                "--secure-port=0",
                "--kube-api-qps=1000",
                "--kube-api-burst=2000",
            ]
        )  # fmt: skip
        self._install([manifest for name in self.nodes for manifest in (_node(name), build_handler_pod(name))])
        # Every new node has the taint `not-ready`, and the controller that would remove the taint does not run.
        self._control_plane.kubectl("taint", "node", *self.nodes, "node.kubernetes.io/not-ready-")

    def _start_programs(self, programs: Mapping[str, Path]) -> None:
        hosts = [f"{_SERVICE}.{NAMESPACE}.svc", "localhost", LOOPBACK]
        serving, client = (
            self._authority.issue_server(_SERVICE, hosts),
            self._authority.issue_client(_CLIENT_NAME, _CLIENT_NAME),
        )
        for process, account in ((self._api, "kubevirt-apiserver"), (self._controller, "kubevirt-controller")):
            kubeconfig = self._keys / f"{process.name}.kubeconfig"
            self._control_plane.write_service_account_kubeconfig(kubeconfig, NAMESPACE, account)
            flags = [
                f"--kubeconfig={kubeconfig}",
                f"--listen={LOOPBACK}",
                f"--port={self._ports.reserve(process.name)}",
            ]
            if process is self._api:
                flags += [f"--tls-cert-file={serving.certificate}", f"--tls-key-file={serving.key}"]
                flags += [f"--handler-cert-file={client.certificate}", f"--handler-key-file={client.key}"]
                flags += [f"--console-server-port={self.handler_port}"]
            else:
                flags += [f"--prom-cert-file={serving.certificate}", f"--prom-key-file={serving.key}"]
            process.start([programs[process.name], *flags])
        self._control_plane.write_service_account_kubeconfig(self.handler_kubeconfig, NAMESPACE, "kubevirt-handler")
        for process in (self._api, self._controller):
            process.wait_ready(partial(is_listening, self._ports[process.name]), READY_SECONDS)

    def _connections(self, items: list[Manifest]) -> list[Manifest]:
        """Return the objects that route requests to virt-api.

        Webhooks get a URL; the aggregated API gets a Service with an external name.
        """
        bundle = base64.b64encode(self._authority.files.certificate.read_bytes()).decode()
        port = self._ports[_SERVICE]
        spec = {"type": "ExternalName", "externalName": "localhost"}
        metadata = {"name": _SERVICE, "namespace": NAMESPACE}
        made: list[Manifest] = [{"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}]
        for item in items:
            if item["kind"] == "APIService":
                item["spec"] |= {"caBundle": bundle, "service": item["spec"]["service"] | {"port": port}}
                made.append(item)
            elif item["kind"] in _WEBHOOKS and item["metadata"]["name"] != _OPERATOR_WEBHOOKS:
                for webhook in item["webhooks"]:
                    path = webhook["clientConfig"]["service"]["path"]
                    webhook["clientConfig"] = {"url": f"https://{LOOPBACK}:{port}{path}", "caBundle": bundle}
                made.append(item)
        return made


_ACCESS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def read_manifests() -> list[Manifest]:
    """Return the objects that virt-operator installs in addition to the programs.

    Raises:
        SetupError: the program virt-manifests cannot be built.
    """
    program = tools.ensure(["virt-manifests"])["virt-manifests"]
    result = subprocess.run([program], capture_output=True, text=True, timeout=READY_SECONDS, check=True)
    items: list[Manifest] = json.loads(result.stdout)["items"]
    for item in items:
        item["metadata"].pop("creationTimestamp", None)
        item.pop("status", None)
    return items


def _node(name: str) -> Manifest:
    resources = {"cpu": "1000", "memory": "4Ti", "pods": str(MAX_PODS_PER_NODE), "ephemeral-storage": "4Ti"}
    resources |= {f"devices.kubevirt.io/{device}": "1000" for device in DEVICES}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubevirt.io/schedulable": "true",
        "machine-type.node.kubevirt.io/q35": "true",
        NODE_LABEL: "true",
    }
    heartbeat = {"kubevirt.io/heartbeat": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": heartbeat},
        "status": {"capacity": resources, "allocatable": resources},
    }


def build_handler_pod(node: str) -> Manifest:
    """Return the pod by which virt-api finds the virt-handler of a node. kwok emulates this pod."""
    labels = {"kubevirt.io": "virt-handler"}
    containers = [{"name": "virt-handler", "image": "virt-handler"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"virt-handler-{node}", "namespace": NAMESPACE, "labels": labels},
        "spec": {"nodeName": node, "hostNetwork": True, "containers": containers},
    }


def _free_definition(kind: str, scope: str) -> Manifest:
    """Return a substitute for a definition of CDI, whose objects may have any content."""
    singular = kind.lower()
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{singular}s.cdi.kubevirt.io"},
        "spec": {
            "group": "cdi.kubevirt.io",
            "scope": scope,
            "names": {"kind": kind, "plural": f"{singular}s", "singular": singular},
            "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": schema}],
        },
    }
