"""How kube-apiserver finds the aggregated apiserver."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from simyard.api import names
from simyard.api.base import Json
from simyard.build.metadata import metadata

HTTPS_PORT = 443
CONTAINER_PORT = 8443
SELECTOR = {"app.kubernetes.io/part-of": "simyard", "app.kubernetes.io/component": "apiserver"}
"""The labels of the apiserver's pods."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the apiserver answers. ``ca_bundle`` (PEM) vouches for its certificate, whose name is :func:`host`.

    ``local_port`` is set where it is a process on kube-apiserver's own machine: it is reached as ``localhost``.
    """

    ca_bundle: bytes
    local_port: int | None = None


def host(namespace: str) -> str:
    """The name that the serving certificate must have."""
    return f"{names.APISERVER}.{namespace}.svc"


def service(namespace: str, endpoint: Endpoint) -> Json:
    """The Service in front of the apiserver."""
    if endpoint.local_port is not None:
        spec: Json = {"type": "ExternalName", "externalName": "localhost"}
    else:
        port = {"name": "https", "port": HTTPS_PORT, "targetPort": CONTAINER_PORT, "protocol": "TCP"}
        spec = {"type": "ClusterIP", "selector": SELECTOR, "ports": [port]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata(names.APISERVER, namespace), "spec": spec}


def api_service(namespace: str, endpoint: Endpoint) -> Json:
    """The APIService. Its priority is the lowest, so that ``kubectl get workers`` means the custom resources."""
    port = endpoint.local_port or HTTPS_PORT
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": metadata(f"{names.VERSION}.{names.SUBRESOURCES_GROUP}"),
        "spec": {
            "group": names.SUBRESOURCES_GROUP,
            "version": names.VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 15,
            "caBundle": base64.b64encode(endpoint.ca_bundle).decode(),
            "service": {"name": names.APISERVER, "namespace": namespace, "port": port},
        },
    }
