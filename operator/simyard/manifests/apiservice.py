# SPDX-License-Identifier: Apache-2.0
"""Service and APIService through which kube-apiserver reaches the aggregated apiserver."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from simyard.api import names
from simyard.api.base import Json
from simyard.manifests.metadata import build_metadata

HTTPS_PORT = 443
CONTAINER_PORT = 8443
SELECTOR = {"app.kubernetes.io/part-of": "simyard", "app.kubernetes.io/component": "apiserver"}
"""Labels of the apiserver's pods."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Endpoint of the apiserver.

    Attributes:
        ca_bundle: CA of the serving certificate (PEM); the certificate must have the name :func:`get_host`.
        local_port: Port of an apiserver that runs as a process on the machine of kube-apiserver, which then connects
            to ``localhost``. None if the apiserver runs in pods.
    """

    ca_bundle: bytes
    local_port: int | None = None


def get_host(namespace: str) -> str:
    """Return the name that the serving certificate must have."""
    return f"{names.APISERVER}.{namespace}.svc"


def build_service(namespace: str, endpoint: Endpoint) -> Json:
    """Return the Service of the apiserver."""
    if endpoint.local_port is not None:
        spec: Json = {"type": "ExternalName", "externalName": "localhost"}
    else:
        port = {"name": "https", "port": HTTPS_PORT, "targetPort": CONTAINER_PORT, "protocol": "TCP"}
        spec = {"type": "ClusterIP", "selector": SELECTOR, "ports": [port]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": build_metadata(names.APISERVER, namespace), "spec": spec}


def build_api_service(namespace: str, endpoint: Endpoint) -> Json:
    """Return the APIService. Its priority is the lowest, so that ``kubectl get workers`` lists custom resources."""
    port = endpoint.local_port or HTTPS_PORT
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": build_metadata(f"{names.VERSION}.{names.SUBRESOURCES_GROUP}"),
        "spec": {
            "group": names.SUBRESOURCES_GROUP,
            "version": names.VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 15,
            "caBundle": base64.b64encode(endpoint.ca_bundle).decode(),
            "service": {"name": names.APISERVER, "namespace": namespace, "port": port},
        },
    }
