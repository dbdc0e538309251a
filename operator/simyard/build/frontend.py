"""What the OCCI frontends of a service consist of: a Deployment, a Service and a PodDisruptionBudget.

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
from simyard.build.metadata import PART_OF, metadata
from simyard_sites.kubernetes.resource import Resource

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
SERVICES = Resource("", "v1", "services", "Service")
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
KINDS = (DEPLOYMENTS, SERVICES, BUDGETS)

COMPONENT = {"app.kubernetes.io/component": "frontend"}
INSTANCE = "app.kubernetes.io/instance"
HTTPS_PORT = 443
CONTAINER_PORT = 8443
METRICS_PORT = 8080
DRAIN_SECONDS = 5
GRACE_SECONDS = 75
"""The drain, a request that has just begun (60 s at most), and something to spare."""
USER = 65532
"""As in the image."""
TLS_DIRECTORY = "/etc/simyard/tls"
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
    """

    image: str
    namespace: str
    tls_secret: str
    domain: str
    cloud4e: bool = False
    pod: FrontendPod = field(default_factory=FrontendPod)


def object_name(namespace: str, service: str) -> str:
    """The name of a service's frontends, a DNS label: readable, and unique by its last eight digits."""
    digits = hashlib.sha256(f"{namespace}/{service}".encode()).hexdigest()[:8]
    parts = [part[:_PART_OF_NAME].rstrip("-") for part in (namespace, service)]
    return "-".join(["occi", *parts, digits])


def endpoint(namespace: str, service: str, template: FrontendTemplate) -> str:
    """The URL of a service's frontends."""
    return f"https://{object_name(namespace, service)}.{template.domain}"


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
    specs = [(SERVICES, _service(marks)), (DEPLOYMENTS, _deployment(namespace, service, replicas, template, marks))]
    if replicas > 1:
        specs.append((BUDGETS, _budget(marks)))
    return [_manifest(kind, metadata(name, template.namespace, **marks), spec) for kind, spec in specs]


def _manifest(kind: Resource, meta: Json, spec: Json) -> Json:
    """With a digest of it all, so that what another version of ours has applied differs from what is wanted."""
    text = json.dumps([meta, spec], sort_keys=True, separators=(",", ":"))
    annotations = {names.ANNOTATION_MANIFEST: hashlib.sha256(text.encode()).hexdigest()[:16]}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {**meta, "annotations": annotations},
        "spec": spec,
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
    # No constraint for zones beside it: where nodes have no zone the scheduler would score neither.
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": selector,
        "matchLabelKeys": ["pod-template-hash"],
    }
    zones = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": selector}
    apart = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": zones}]}
    given = template.pod
    pod: Json = {
        "serviceAccountName": names.FRONTEND,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "nodeSelector": {"kubernetes.io/os": "linux", **given.node_selector},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": given.affinity or {"podAntiAffinity": apart},
        "topologySpreadConstraints": [spread],
        "containers": [_container(namespace, service, template)],
        "volumes": [{"name": "tls", "secret": {"secretName": template.tls_secret, "defaultMode": 0o440}}],
    }
    if given.tolerations:
        pod["tolerations"] = [item.to_json() for item in given.tolerations]
    if given.priority_class_name:
        pod["priorityClassName"] = given.priority_class_name
    pod_metadata: Json = {"labels": marks}
    if given.pod_annotations:
        pod_metadata["annotations"] = given.pod_annotations
    return {
        "replicas": replicas,
        "revisionHistoryLimit": 2,
        "selector": selector,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": {"metadata": pod_metadata, "spec": pod},
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
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tls", "mountPath": TLS_DIRECTORY, "readOnly": True}],
    }
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
