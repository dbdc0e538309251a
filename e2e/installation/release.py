# SPDX-License-Identifier: Apache-2.0
"""The chart as rendered by Helm, on a control plane without nodes: its Deployments run as processes."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import urllib.request
from pathlib import Path

from cryptography import x509
from helm_release import NAMESPACE, Helm, of_kind
from played_pods import PlayedPod

from kube_api import Api
from simyard.api.base import Json
from simyard.manifests import apiservice
from simyard_dev.ports import LOOPBACK, Ports

READY_SECONDS = 240.0
BROKER_SECRET = "rabbit"
API_SERVICE = "v1alpha1.subresources.simyard.dev"
ROLES = ("operator", "apiserver")
PROCESSES = ("Deployment", "Pod")


class Release:
    """A release of the chart; its apiserver is reached as the development control plane reaches aggregated APIs.

    Only four things differ from a release in a cluster: each process listens on a loopback port of its own, the Service
    and the port of the APIService lead there, and the pods are processes.
    """

    def __init__(self, directory: Path, helm: Helm, *values: str) -> None:
        self._control_plane = helm.control_plane
        self.api = Api(self._control_plane.kubeconfig)
        self._ports = Ports(directory)
        self._port = self._ports.reserve("apiserver")
        own = [f"apiserver.extraArgs[1]=--port={self._port}"]
        for role in ROLES:
            metrics = self._ports.reserve(f"{role}-metrics")
            own += [f"{role}.metricsPort={metrics}", f"{role}.extraArgs[0]=--bind={LOOPBACK}"]
        self.manifests = helm.render(*values, *own)
        deployments = of_kind(self.manifests, "Deployment")
        self.operator, self.apiserver = (
            PlayedPod(directory / role, self._control_plane, deployments[f"simyard-{role}"]) for role in ROLES
        )

    def apply(self) -> None:
        """Apply the objects of the release."""
        items = [item for item in self.manifests if item["kind"] not in PROCESSES]
        for item in items:
            if item["kind"] == "APIService":
                item["spec"]["service"]["port"] = self._port
            elif (item["kind"], item["metadata"]["name"]) == ("Service", "simyard-apiserver"):
                item["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        self.api.install(sorted(items, key=lambda item: item["kind"] != "CustomResourceDefinition"))

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl as administrator in the namespace of the release, and return its output."""
        return self._control_plane.kubectl(f"--namespace={NAMESPACE}", *arguments, stdin=stdin)

    def get(self, kind: str, name: str) -> Json:
        """Return an object."""
        found: Json = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def start(self, pod: PlayedPod) -> None:
        """Start a pod, and wait until its probe succeeds."""
        pod.start()
        pod.process.wait_ready(lambda: self._is_ready(pod), READY_SECONDS)

    def read_secret(self, name: str) -> dict[str, bytes]:
        """Return the content of a Secret."""
        return {key: base64.b64decode(value) for key, value in self.get("secret", name)["data"].items()}

    def read_serial(self, secret: str) -> int:
        """Return the serial number of the certificate in a Secret."""
        return x509.load_pem_x509_certificate(self.read_secret(secret)["tls.crt"]).serial_number

    def read_ca_bundle(self) -> str:
        """Return the authority by which kube-apiserver verifies the apiserver (PEM)."""
        return base64.b64decode(self.get("apiservice", API_SERVICE)["spec"]["caBundle"]).decode()

    def verify_apiserver(self, authority: str) -> int:
        """Connect to the apiserver and verify it as kube-apiserver does; return the serial number of its certificate.

        Raises:
            ssl.SSLError: the authority (PEM) did not sign the certificate, or the certificate has other names.
        """
        context = ssl.create_default_context(cadata=authority)
        with (
            socket.create_connection((LOOPBACK, self._port), timeout=READY_SECONDS) as connection,
            context.wrap_socket(connection, server_hostname=apiservice.get_host(NAMESPACE)) as encrypted,
        ):
            certificate = encrypted.getpeercert(binary_form=True)
        assert certificate
        return x509.load_der_x509_certificate(certificate).serial_number

    def _is_ready(self, pod: PlayedPod) -> bool:
        url = f"http://{LOOPBACK}:{self._ports[f'{pod.process.name}-metrics']}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
