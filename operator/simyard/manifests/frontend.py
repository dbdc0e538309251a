# SPDX-License-Identifier: Apache-2.0
"""Objects of a service's OCCI frontends: a Deployment, a Service, a PodDisruptionBudget, an account and its routes.

The objects are in the platform's namespace, because frontends have broker credentials. Labels name the service of an
object. The name of an object is computed from the namespace and name of the service, so that a second build describes
the same objects.

After SIGTERM, a frontend accepts requests for :data:`DRAIN_SECONDS`, while the Service removes it from its endpoints.
Then it finishes its requests. So the pods need no ``preStop`` hook, and their grace period is longer than the longest
request.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from simyard.api import names
from simyard.api.base import Json
from simyard.api.frontend_pod import FrontendPod
from simyard.api.frontend_route import FrontendRoute
from simyard.manifests.frontend_account import (
    ACCOUNT_KINDS,
    ROLE_BINDINGS,
    SERVICE_ACCOUNTS,
    build_role_binding_content,
)
from simyard.manifests.frontend_route import (
    BACKEND_TLS_POLICIES,
    GATEWAY_KINDS,
    HTTP_ROUTES,
    INGRESSES,
    build_backend_tls_policy,
    build_http_route,
    build_ingress,
)
from simyard.manifests.metadata import PART_OF, build_metadata
from simyard_adapter.file_urls import NO_URLS, AllowedUrls
from simyard_sites.kubernetes.resource import Resource

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
SERVICES = Resource("", "v1", "services", "Service")
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
KINDS = (*ACCOUNT_KINDS, DEPLOYMENTS, SERVICES, BUDGETS, INGRESSES)
"""Kinds that exist in every cluster. The kinds of a Gateway exist only in clusters in which they are installed."""

COMPONENT = {"app.kubernetes.io/component": "frontend"}
INSTANCE = "app.kubernetes.io/instance"
HTTPS_PORT = 443
CONTAINER_PORT = 8443
METRICS_PORT = 8080
DRAIN_SECONDS = 5
GRACE_SECONDS = 75
"""Grace period: the drain, a request that has just begun (at most 60 s), and a margin."""
TLS_DIRECTORY = "/etc/simyard/tls"
NAME_PREFIX = "occi-"
"""Prefix of the names of all frontends' objects. No other account in the platform's namespace has this prefix."""
_PART_OF_NAME = 20


@dataclass(frozen=True, slots=True)
class FrontendTemplate:
    """Settings that all frontends of an installation share.

    Attributes:
        image: Container image with the command ``simyard``.
        namespace: Namespace of the platform.
        tls_secret: Secret of type ``kubernetes.io/tls`` in this namespace, valid for every host in ``domain``.
        domain: DNS domain of the frontends' hosts.
        cloud4e: True if the frontends also serve adapters that use Cloud4E's binding.
        pod: Settings of the frontends' pods.
        route: Routes for clients outside the cluster.
        file_urls: URLs that file parameters of actions may have.
    """

    image: str
    namespace: str
    tls_secret: str
    domain: str
    cloud4e: bool = False
    pod: FrontendPod = field(default_factory=FrontendPod)
    route: FrontendRoute = field(default_factory=FrontendRoute)
    file_urls: AllowedUrls = NO_URLS

    @property
    def kinds(self) -> tuple[Resource, ...]:
        """Kinds of the objects that a frontend can consist of."""
        return KINDS if self.route.gateway is None else (*KINDS, *GATEWAY_KINDS)


def make_object_name(namespace: str, service: str) -> str:
    """Return the name of all objects of a service's frontends.

    It is a readable DNS label; its last eight digits make it unique.
    """
    digits = hashlib.sha256(f"{namespace}/{service}".encode()).hexdigest()[:8]
    parts = [part[:_PART_OF_NAME].rstrip("-") for part in (namespace, service)]
    return NAME_PREFIX + "-".join([*parts, digits])


def get_endpoint(namespace: str, service: str, template: FrontendTemplate) -> str:
    """Return the URL of a service's frontends."""
    return f"https://{_get_host(namespace, service, template)}"


def _get_host(namespace: str, service: str, template: FrontendTemplate) -> str:
    return f"{make_object_name(namespace, service)}.{template.domain}"


def build_labels(namespace: str, service: str) -> dict[str, str]:
    """Return the labels of all objects of a service's frontends."""
    return {
        **PART_OF,
        **COMPONENT,
        INSTANCE: make_object_name(namespace, service),
        names.LABEL_SERVICE_NAMESPACE: namespace,
        names.LABEL_SERVICE: service,
    }


def find_owner(found: dict[str, str]) -> tuple[str, str] | None:
    """Return the namespace and name of the service that the labels of a frontend's object name, or None."""
    namespace, service = found.get(names.LABEL_SERVICE_NAMESPACE, ""), found.get(names.LABEL_SERVICE, "")
    is_ours = (PART_OF | COMPONENT).items() <= found.items()
    return (namespace, service) if is_ours and namespace and service else None


def build_frontend(namespace: str, service: str, replicas: int, template: FrontendTemplate) -> list[Json]:
    """Return all objects of a service's frontends, in the order in which to apply them."""
    name, marks = make_object_name(namespace, service), build_labels(namespace, service)
    contents: list[tuple[Resource, Json]] = [
        (SERVICE_ACCOUNTS, {}),
        (ROLE_BINDINGS, build_role_binding_content("Role", template.pod.role, [name], template.namespace)),
        (SERVICES, {"spec": _build_service(marks)}),
        (DEPLOYMENTS, {"spec": _build_deployment(namespace, service, replicas, template, marks)}),
    ]
    if replicas > 1:
        contents.append((BUDGETS, {"spec": _build_budget(marks)}))
    host, route = _get_host(namespace, service, template), template.route
    annotations = {SERVICE_ACCOUNTS: template.pod.account_annotations}
    if route.ingress is not None:
        contents.append(
            (INGRESSES, {"spec": build_ingress(name, host, HTTPS_PORT, template.tls_secret, route.ingress)})
        )
        annotations[INGRESSES] = route.ingress.annotations
    if route.gateway is not None:
        to_service = build_http_route(name, host, HTTPS_PORT, template.namespace, route.gateway)
        contents.append((HTTP_ROUTES, {"spec": to_service}))
        contents.append((BACKEND_TLS_POLICIES, {"spec": build_backend_tls_policy(name, host, route.gateway)}))
    meta = build_metadata(name, template.namespace, **{**template.pod.labels, **marks})
    return [_build_manifest(kind, meta, content, annotations.get(kind, {})) for kind, content in contents]


def _build_manifest(kind: Resource, meta: Json, content: Json, more: dict[str, str]) -> Json:
    """Return a manifest with its digest, from which the operator recognizes objects of another version."""
    meta = {**meta, "annotations": more} if more else meta
    text = json.dumps([meta, content], sort_keys=True, separators=(",", ":"))
    annotations = {**more, names.ANNOTATION_MANIFEST: hashlib.sha256(text.encode()).hexdigest()[:16]}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {**meta, "annotations": annotations},
        **content,
    }


def _build_selector(marks: dict[str, str]) -> dict[str, str]:
    return {name: marks[name] for name in (*COMPONENT, INSTANCE)}


def _build_service(marks: dict[str, str]) -> Json:
    port = {"name": "https", "port": HTTPS_PORT, "targetPort": "https", "protocol": "TCP", "appProtocol": "https"}
    return {"type": "ClusterIP", "selector": _build_selector(marks), "ports": [port]}


def _build_budget(marks: dict[str, str]) -> Json:
    return {
        "maxUnavailable": 1,
        "selector": {"matchLabels": _build_selector(marks)},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }


def _build_deployment(
    namespace: str, service: str, replicas: int, template: FrontendTemplate, marks: dict[str, str]
) -> Json:
    selector = {"matchLabels": _build_selector(marks)}
    zones = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": selector}
    apart = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": zones}]}
    given = template.pod
    pod: Json = {
        "serviceAccountName": marks[INSTANCE],
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "nodeSelector": {"kubernetes.io/os": "linux", **given.node_selector},
        "securityContext": given.pod_security_context,
        "affinity": given.affinity or {"podAntiAffinity": apart},
        "topologySpreadConstraints": given.topology_spread_constraints or [_build_spread(selector, replicas, given)],
        "containers": [_build_container(namespace, service, template)],
        "volumes": [
            {"name": "tls", "secret": {"secretName": template.tls_secret, "defaultMode": 0o440}},
            *given.extra_volumes,
        ],
    }
    if given.tolerations:
        pod["tolerations"] = [item.to_json() for item in given.tolerations]
    if given.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in given.image_pull_secrets]
    if given.priority_class_name:
        pod["priorityClassName"] = given.priority_class_name
    pod_metadata: Json = {"labels": {**given.labels, **given.pod_labels, **marks}}
    if given.pod_annotations:
        pod_metadata["annotations"] = given.pod_annotations
    return {
        "replicas": replicas,
        "revisionHistoryLimit": 2,
        "selector": selector,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": {"metadata": pod_metadata, "spec": pod},
    }


def _build_spread(selector: Json, replicas: int, given: FrontendPod) -> Json:
    """Return the constraints that keep the replicas on different nodes.

    With ``required``, tainted and cordoned nodes count as nodes without a replica, so no other node may get all
    replicas. There is no constraint for zones, because the scheduler would then exclude each node without a label for
    its zone.
    """
    required = given.spread == "required"
    return {
        "maxSkew": max(1, replicas - 1) if required else 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway" if given.spread == "preferred" else "DoNotSchedule",
        "nodeTaintsPolicy": "Ignore" if required else "Honor",
        "labelSelector": selector,
        "matchLabelKeys": ["pod-template-hash"],
    }


def _build_container(namespace: str, service: str, template: FrontendTemplate) -> Json:
    given = template.pod
    container: Json = {
        "name": "frontend",
        "image": template.image,
        "args": [
            "frontend",
            f"--platform-namespace={template.namespace}",
            f"--namespace={namespace}",
            f"--service={service}",
            f"--endpoint={get_endpoint(namespace, service, template)}",
            f"--port={CONTAINER_PORT}",
            f"--metrics-port={METRICS_PORT}",
            f"--tls-cert={TLS_DIRECTORY}/tls.crt",
            f"--tls-key={TLS_DIRECTORY}/tls.key",
            f"--drain-seconds={DRAIN_SECONDS}",
            "--log-format=json",
            *([f"--log-level={given.log_level}"] if given.log_level else []),
            *(["--cloud4e"] if template.cloud4e else []),
            *(f"--files-url={prefix}" for prefix in template.file_urls.prefixes),
        ],
        "ports": [
            {"name": "https", "containerPort": CONTAINER_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        "resources": given.resources.to_json(),
        # A frontend is ready after it has listed its objects; a list of 10,000 workers takes some seconds.
        "startupProbe": _build_probe("/readyz", period=2, failures=60),
        "readinessProbe": _build_probe("/readyz", period=5, failures=2),
        "livenessProbe": _build_probe("/livez", period=10, failures=6),
        "securityContext": given.container_security_context,
        "volumeMounts": [{"name": "tls", "mountPath": TLS_DIRECTORY, "readOnly": True}, *given.extra_volume_mounts],
    }
    if given.extra_env:
        container["env"] = given.extra_env
    if given.image_pull_policy:
        container["imagePullPolicy"] = given.image_pull_policy
    return container


def _build_probe(path: str, *, period: int, failures: int) -> Json:
    return {
        "httpGet": {"path": path, "port": "metrics", "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
