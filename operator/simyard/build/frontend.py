"""What the OCCI frontends of a service consist of: a Deployment, a Service, a PodDisruptionBudget, and an account.

They stand in the platform's namespace, because they hold broker credentials; labels say whose they are. Their names are
made from the service's namespace and name, so that building them again means the same objects.

A frontend that is to end goes on serving for :data:`DRAIN_SECONDS` while the Service's endpoints forget it, then
finishes what it has begun. So there is no ``preStop`` hook, and the time of grace is longer than the longest request.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from simyard.api import names
from simyard.api.base import Json
from simyard.api.frontend_pod import FrontendPod
from simyard.api.frontend_route import FrontendRoute
from simyard.build.frontend_account import ACCOUNT_KINDS, ROLE_BINDINGS, SERVICE_ACCOUNTS, bind_role
from simyard.build.frontend_route import (
    BACKEND_TLS_POLICIES,
    GATEWAY_KINDS,
    HTTP_ROUTES,
    INGRESSES,
    backend_tls_policy,
    http_route,
    ingress,
)
from simyard.build.metadata import PART_OF, metadata
from simyard_sites.kubernetes.resource import Resource

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
SERVICES = Resource("", "v1", "services", "Service")
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
KINDS = (*ACCOUNT_KINDS, DEPLOYMENTS, SERVICES, BUDGETS, INGRESSES)
"""The kinds that every cluster has. Those of a Gateway are there only where somebody has installed them."""

COMPONENT = {"app.kubernetes.io/component": "frontend"}
INSTANCE = "app.kubernetes.io/instance"
HTTPS_PORT = 443
CONTAINER_PORT = 8443
METRICS_PORT = 8080
DRAIN_SECONDS = 5
GRACE_SECONDS = 75
"""The drain, a request that has just begun (60 s at most), and something to spare."""
TLS_DIRECTORY = "/etc/simyard/tls"
NAME_PREFIX = "occi-"
"""Names of all objects of frontends begin so; in the platform's namespace no other account has such a name."""
_PART_OF_NAME = 20


@dataclass(frozen=True, slots=True)
class FrontendTemplate:
    """What all frontends of an installation share.

    Attributes:
        image: the container image; it has the command ``simyard``.
        namespace: the platform's own namespace.
        tls_secret: a Secret of type ``kubernetes.io/tls`` there, good for every host in ``domain``.
        domain: the frontends' hosts are in it.
        cloud4e: they also serve adapters that speak Cloud4E's binding.
        pod: what the installation says about their pods.
        route: how clients outside of the cluster reach them.
    """

    image: str
    namespace: str
    tls_secret: str
    domain: str
    cloud4e: bool = False
    pod: FrontendPod = field(default_factory=FrontendPod)
    route: FrontendRoute = field(default_factory=FrontendRoute)

    @property
    def kinds(self) -> tuple[Resource, ...]:
        """The kinds of the objects that a frontend can consist of."""
        return KINDS if self.route.gateway is None else (*KINDS, *GATEWAY_KINDS)


def object_name(namespace: str, service: str) -> str:
    """The name of a service's frontends, a DNS label: readable, and unique by its last eight digits."""
    digits = hashlib.sha256(f"{namespace}/{service}".encode()).hexdigest()[:8]
    parts = [part[:_PART_OF_NAME].rstrip("-") for part in (namespace, service)]
    return NAME_PREFIX + "-".join([*parts, digits])


def endpoint(namespace: str, service: str, template: FrontendTemplate) -> str:
    """The URL of a service's frontends."""
    return f"https://{_host(namespace, service, template)}"


def _host(namespace: str, service: str, template: FrontendTemplate) -> str:
    return f"{object_name(namespace, service)}.{template.domain}"


def labels(namespace: str, service: str) -> dict[str, str]:
    """The labels of everything that the frontends of a service consist of."""
    return {
        **PART_OF,
        **COMPONENT,
        INSTANCE: object_name(namespace, service),
        names.LABEL_SERVICE_NAMESPACE: namespace,
        names.LABEL_SERVICE: service,
    }


def owner_of(found: dict[str, str]) -> tuple[str, str] | None:
    """Namespace and name of the service that an object with these labels belongs to; None when it is no frontend's."""
    namespace, service = found.get(names.LABEL_SERVICE_NAMESPACE, ""), found.get(names.LABEL_SERVICE, "")
    is_ours = (PART_OF | COMPONENT).items() <= found.items()
    return (namespace, service) if is_ours and namespace and service else None


def frontend(namespace: str, service: str, replicas: int, template: FrontendTemplate) -> list[Json]:
    """All objects for so many frontends of a service, to be applied in this order."""
    name, marks = object_name(namespace, service), labels(namespace, service)
    contents: list[tuple[Resource, Json]] = [
        (SERVICE_ACCOUNTS, {}),
        (ROLE_BINDINGS, bind_role("Role", template.pod.role, [name], template.namespace)),
        (SERVICES, {"spec": _service(marks)}),
        (DEPLOYMENTS, {"spec": _deployment(namespace, service, replicas, template, marks)}),
    ]
    if replicas > 1:
        contents.append((BUDGETS, {"spec": _budget(marks)}))
    host, route = _host(namespace, service, template), template.route
    annotations = {SERVICE_ACCOUNTS: template.pod.account_annotations}
    if route.ingress is not None:
        contents.append((INGRESSES, {"spec": ingress(name, host, HTTPS_PORT, template.tls_secret, route.ingress)}))
        annotations[INGRESSES] = route.ingress.annotations
    if route.gateway is not None:
        to_service = http_route(name, host, HTTPS_PORT, template.namespace, route.gateway)
        contents.append((HTTP_ROUTES, {"spec": to_service}))
        contents.append((BACKEND_TLS_POLICIES, {"spec": backend_tls_policy(name, host, route.gateway)}))
    meta = metadata(name, template.namespace, **{**template.pod.labels, **marks})
    return [_manifest(kind, meta, content, annotations.get(kind, {})) for kind, content in contents]


def _manifest(kind: Resource, meta: Json, content: Json, more: dict[str, str]) -> Json:
    """With a digest of it all, so that what another version of ours has applied differs from what is wanted."""
    meta = {**meta, "annotations": more} if more else meta
    text = json.dumps([meta, content], sort_keys=True, separators=(",", ":"))
    annotations = {**more, names.ANNOTATION_MANIFEST: hashlib.sha256(text.encode()).hexdigest()[:16]}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {**meta, "annotations": annotations},
        **content,
    }


def _selector(marks: dict[str, str]) -> dict[str, str]:
    return {name: marks[name] for name in (*COMPONENT, INSTANCE)}


def _service(marks: dict[str, str]) -> Json:
    port = {"name": "https", "port": HTTPS_PORT, "targetPort": "https", "protocol": "TCP", "appProtocol": "https"}
    return {"type": "ClusterIP", "selector": _selector(marks), "ports": [port]}


def _budget(marks: dict[str, str]) -> Json:
    return {
        "maxUnavailable": 1,
        "selector": {"matchLabels": _selector(marks)},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }


def _deployment(namespace: str, service: str, replicas: int, template: FrontendTemplate, marks: dict[str, str]) -> Json:
    selector = {"matchLabels": _selector(marks)}
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
        "topologySpreadConstraints": given.topology_spread_constraints or [_spread(selector, replicas, given)],
        "containers": [_container(namespace, service, template)],
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


def _spread(selector: Json, replicas: int, given: FrontendPod) -> Json:
    """Keep the replicas on different nodes.

    ``required`` counts tainted and cordoned nodes: each of them has no pod, so no node may have all replicas. There is
    no constraint for zones: the scheduler leaves out a node that lacks the label of any one constraint.
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


def _container(namespace: str, service: str, template: FrontendTemplate) -> Json:
    given = template.pod
    container: Json = {
        "name": "frontend",
        "image": template.image,
        "args": [
            "frontend",
            f"--platform-namespace={template.namespace}",
            f"--namespace={namespace}",
            f"--service={service}",
            f"--endpoint={endpoint(namespace, service, template)}",
            f"--port={CONTAINER_PORT}",
            f"--metrics-port={METRICS_PORT}",
            f"--tls-cert={TLS_DIRECTORY}/tls.crt",
            f"--tls-key={TLS_DIRECTORY}/tls.key",
            f"--drain-seconds={DRAIN_SECONDS}",
            "--log-format=json",
            *([f"--log-level={given.log_level}"] if given.log_level else []),
            *(["--cloud4e"] if template.cloud4e else []),
        ],
        "ports": [
            {"name": "https", "containerPort": CONTAINER_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        "resources": given.resources.to_json(),
        # It lists what it serves before it is ready: 10,000 workers take it some seconds.
        "startupProbe": _probe("/readyz", period=2, failures=60),
        "readinessProbe": _probe("/readyz", period=5, failures=2),
        "livenessProbe": _probe("/livez", period=10, failures=6),
        "securityContext": given.container_security_context,
        "volumeMounts": [{"name": "tls", "mountPath": TLS_DIRECTORY, "readOnly": True}, *given.extra_volume_mounts],
    }
    if given.extra_env:
        container["env"] = given.extra_env
    if given.image_pull_policy:
        container["imagePullPolicy"] = given.image_pull_policy
    return container


def _probe(path: str, *, period: int, failures: int) -> Json:
    return {
        "httpGet": {"path": path, "port": "metrics", "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
