# SPDX-License-Identifier: Apache-2.0
"""Objects with which an Ingress controller or a Gateway routes clients to the OCCI frontends of a service.

The frontends use TLS. A Gateway learns this from a BackendTLSPolicy, an Ingress controller from its own annotations.
"""

from __future__ import annotations

from simyard.api.base import Json
from simyard.api.frontend_route import GatewayRoute, IngressRoute
from simyard_sites.kubernetes.resource import Resource

INGRESSES = Resource("networking.k8s.io", "v1", "ingresses", "Ingress")
HTTP_ROUTES = Resource("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute")
BACKEND_TLS_POLICIES = Resource("gateway.networking.k8s.io", "v1", "backendtlspolicies", "BackendTLSPolicy")
GATEWAY_KINDS = (HTTP_ROUTES, BACKEND_TLS_POLICIES)


def build_ingress(service: str, host: str, port: int, tls_secret: str, route: IngressRoute) -> Json:
    """Build the spec of the Ingress to a Service."""
    backend = {"service": {"name": service, "port": {"number": port}}}
    spec: Json = {
        "rules": [{"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}],
        "tls": [{"hosts": [host], "secretName": route.tls_secret_name or tls_secret}],
    }
    return {**spec, "ingressClassName": route.class_name} if route.class_name else spec


def build_http_route(service: str, host: str, port: int, namespace: str, route: GatewayRoute) -> Json:
    """Build the spec of the HTTPRoute to a Service of the platform's ``namespace``."""
    parent: Json = {"name": route.name, "namespace": route.namespace or namespace}
    if route.section_name:
        parent["sectionName"] = route.section_name
    return {"parentRefs": [parent], "hostnames": [host], "rules": [{"backendRefs": [{"name": service, "port": port}]}]}


def build_backend_tls_policy(service: str, host: str, route: GatewayRoute) -> Json:
    """Build the spec of the BackendTLSPolicy, with which the Gateway verifies the frontends' certificate."""
    validation: Json = {"hostname": host}
    if route.ca_config_map:
        validation["caCertificateRefs"] = [{"group": "", "kind": "ConfigMap", "name": route.ca_config_map}]
    else:
        validation["wellKnownCACertificates"] = "System"
    return {"targetRefs": [{"group": "", "kind": "Service", "name": service}], "validation": validation}
