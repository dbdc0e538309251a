# SPDX-License-Identifier: Apache-2.0
"""Run Prometheus in the cluster.

It is set up as the Prometheus operator would do it from our PodMonitors and our PrometheusRule.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import script_pods
import yaml
from script_pods import Json

NAME = "prometheus"
PORT = 9090
IMAGE = "prom/prometheus:v2.53.5"
"""Image to use if no node has one."""
SECONDS = 2
ALERTS_AFTER = "5s"
"""Time for which the cause of an alert must last here, instead of minutes; the rules are otherwise unchanged."""


@dataclass(frozen=True)
class Monitoring:
    """The parts of the chart for Prometheus and Grafana."""

    monitors: list[Json]
    rules: Json
    dashboards: dict[str, Json]

    @classmethod
    def of_chart(cls, cluster: Any) -> Monitoring:
        """Return the parts as the chart renders them for the release."""
        parts = ("podMonitors", "rules", "dashboards")
        wanted = [f"--set=monitoring.{part}.enabled=true" for part in parts]
        release = [cluster.release, str(cluster.chart), "-f", str(cluster.values)]
        text = cluster.helm("template", *release, *wanted, "--show-only=templates/monitoring.yaml")
        objects = [item for item in yaml.safe_load_all(text) if item]
        of_kind = {kind: [item for item in objects if item["kind"] == kind] for kind in {o["kind"] for o in objects}}
        [rules], [config_map] = of_kind["PrometheusRule"], of_kind["ConfigMap"]
        dashboards = {name: json.loads(text) for name, text in config_map["data"].items()}
        return cls(of_kind["PodMonitor"], rules["spec"], dashboards)

    def expressions(self) -> list[str]:
        """Return every expression of the rules and of the dashboards' panels."""
        rules = [rule["expr"] for group in self.rules["groups"] for rule in group["rules"]]
        panels = [panel for dashboard in self.dashboards.values() for panel in dashboard["panels"]]
        return rules + [target["expr"] for panel in panels for target in panel.get("targets", [])]

    def configuration(self) -> str:
        """Return ``prometheus.yml``."""
        return yaml.safe_dump(
            {
                "global": {"scrape_interval": f"{SECONDS}s", "evaluation_interval": f"{SECONDS}s"},
                "rule_files": ["/etc/e2e/rules.yml"],
                "scrape_configs": [job for monitor in self.monitors for job in _jobs(monitor)],
            }
        )

    def quick_rules(self) -> str:
        """Return ``rules.yml``: the rules with a shorter delay."""
        groups = [
            {**group, "rules": [{**rule, "for": ALERTS_AFTER} if "for" in rule else rule for rule in group["rules"]]}
            for group in self.rules["groups"]
        ]
        return yaml.safe_dump({"groups": groups})


def _jobs(monitor: Json) -> list[Json]:
    """Return the scrape configurations of a PodMonitor: pods by label, containers by the name of their port."""
    namespace, name = monitor["metadata"]["namespace"], monitor["metadata"]["name"]
    labels = [
        {
            "source_labels": [f"__meta_kubernetes_pod_label_{key.translate(str.maketrans('./-', '___'))}"],
            "regex": value,
            "action": "keep",
        }
        for key, value in monitor["spec"]["selector"]["matchLabels"].items()
    ]
    kept = [
        {"source_labels": [f"__meta_kubernetes_{source}"], "target_label": target}
        for source, target in (("namespace", "namespace"), ("pod_name", "pod"), ("pod_container_name", "container"))
    ]
    return [
        {
            "job_name": f"podMonitor/{namespace}/{name}/{count}",
            "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [namespace]}}],
            "relabel_configs": [
                *labels,
                {
                    "source_labels": ["__meta_kubernetes_pod_container_port_name"],
                    "regex": endpoint["port"],
                    "action": "keep",
                },
                *kept,
            ],
        }
        for count, endpoint in enumerate(monitor["spec"]["podMetricsEndpoints"])
    ]


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus, whose API is reached through the API server."""

    cluster: Any
    namespace: str

    @classmethod
    def start(cls, cluster: Any, namespace: str, monitoring: Monitoring) -> Prometheus:
        """Start Prometheus, and wait until it has found targets."""
        data = {"prometheus.yml": monitoring.configuration(), "rules.yml": monitoring.quick_rules()}
        settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": data}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}}
        cluster.apply(settings, account, _pod(_image(cluster)), namespace=namespace)
        cluster.apply(*_rights(namespace), namespace=cluster.release_namespace)
        cluster.kubectl("wait", f"pod/{NAME}", "-n", namespace, "--for=condition=Ready", "--timeout=110s")
        found = cls(cluster, namespace)
        cluster.wait_for("targets of Prometheus", lambda: found.targets())
        return found

    def stop(self) -> None:
        """Revoke its rights."""
        for kind in ("role", "rolebinding"):
            self.cluster.kubectl("delete", kind, f"e2e-{NAME}", "-n", self.cluster.release_namespace)

    def ask(self, path: str, **query: str) -> Any:
        """Return the answer of its HTTP API."""
        base = f"/api/v1/namespaces/{self.namespace}/pods/{NAME}:{PORT}/proxy/api/v1/{path}"
        answer = json.loads(self.cluster.kubectl("get", "--raw", f"{base}?{urlencode(query)}"))
        assert answer["status"] == "success", answer
        return answer["data"]

    def targets(self) -> dict[str, str]:
        """Return the health of every target by the name of the pod."""
        active = self.ask("targets", state="active")["activeTargets"]
        return {target["labels"]["pod"]: target["health"] for target in active}

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        return {item["labels"]["alertname"] for item in self.ask("alerts")["alerts"] if item["state"] == "firing"}


def _image(cluster: Any) -> str:
    nodes = cluster.get("nodes")["items"]
    known = [name for node in nodes for image in node["status"]["images"] for name in image["names"]]
    return next((name for name in known if "/prometheus:" in name and "@" not in name), IMAGE)


def _pod(image: str) -> Json:
    container = {
        "name": NAME,
        "image": image,
        "command": ["prometheus"],
        "args": ["--config.file=/etc/e2e/prometheus.yml", "--storage.tsdb.path=/data"],
        "ports": [{"containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": PORT}, "periodSeconds": 2},
        "securityContext": script_pods.RESTRICTED,
        "volumeMounts": [
            {"name": "settings", "mountPath": "/etc/e2e", "readOnly": True},
            {"name": "data", "mountPath": "/data"},
        ],
    }
    user = {"runAsNonRoot": True, "runAsUser": 65534, "runAsGroup": 65534, "fsGroup": 65534}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME},
        "spec": {
            "serviceAccountName": NAME,
            "securityContext": {**user, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
            "volumes": [{"name": "settings", "configMap": {"name": NAME}}, {"name": "data", "emptyDir": {}}],
        },
    }


def _rights(namespace: str) -> list[Json]:
    """Return the rights to find pods in the release's namespace, which the Prometheus operator would bring."""
    meta = {"name": f"e2e-{NAME}"}
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    reference = {"apiGroup": group, "kind": "Role", "name": meta["name"]}
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}]
    return [
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": reference,
            "subjects": subjects,
        },
    ]
