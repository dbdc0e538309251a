# SPDX-License-Identifier: Apache-2.0
"""Prometheus scrapes the targets of our PodMonitors, loads our rules, and its alerts follow their causes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import counting
import pytest
from prometheus import Monitoring, Prometheus

ALERT_SECONDS = 300.0
SUFFIX = re.compile(r"_(bucket|sum|count)$")


@pytest.fixture(scope="module")
def monitoring(cluster: Any) -> Monitoring:
    return Monitoring.of_chart(cluster)


@pytest.fixture(scope="module")
def prometheus(cluster: Any, monitoring: Monitoring) -> Iterator[Prometheus]:
    """Provide a Prometheus with targets of each component; the frontends are those of a service with a pool."""
    with cluster.namespace("monitoring") as namespace:
        service = counting.service(cluster.image, namespace, frontends=1)
        cluster.apply(service, counting.pool("pool", 1, cluster.site), namespace=namespace)
        cluster.kubectl("wait", "workerpool/pool", "-n", namespace, "--for=condition=Available", "--timeout=110s")
        found = Prometheus.start(cluster, namespace, monitoring)
        try:
            yield found
        finally:
            found.stop()


def test_every_part_is_scraped(cluster: Any, prometheus: Prometheus, report: Any) -> None:
    def parts() -> set[str]:
        pods = cluster.get("pods", "-n", cluster.release_namespace)["items"]
        component = "app.kubernetes.io/component"
        wanted = {"operator", "apiserver", "frontend"}
        return {pod["metadata"]["name"] for pod in pods if pod["metadata"]["labels"].get(component) in wanted}

    def all_up() -> bool:
        return {name for name, health in prometheus.targets().items() if health == "up"} == parts()

    cluster.wait_for("a scrape of every pod", all_up)
    assert len(parts()) >= 5
    report.add("Monitoring", "pods that Prometheus scrapes by our PodMonitors", len(parts()), "")


def test_the_rules_are_loaded_and_evaluated(cluster: Any, monitoring: Monitoring, prometheus: Prometheus) -> None:
    wanted = {rule["alert"] for group in monitoring.rules["groups"] for rule in group["rules"]}

    def health() -> dict[str, str]:
        rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
        return {rule["name"]: rule["health"] for rule in rules}

    assert len(wanted) >= 7
    cluster.wait_for("an evaluation of every rule", lambda: health() == dict.fromkeys(wanted, "ok"))


def test_every_metric_of_rules_and_dashboards_exists(
    cluster: Any, monitoring: Monitoring, prometheus: Prometheus, report: Any
) -> None:
    named = {name for text in monitoring.expressions() for name in re.findall(r"\bsimyard_\w+", text)}
    assert len(named) >= 10

    def missing() -> set[str]:
        known = set(prometheus.ask("metadata"))
        return {name for name in named if not {name, SUFFIX.sub("", name)} & known}

    def none_is_missing() -> bool:
        return not missing()

    try:
        cluster.wait_for("every metric", none_is_missing, seconds=60)
    finally:
        assert missing() == set()
    report.add("Monitoring", "metrics in rules and dashboards, all present", len(named), "")


def test_every_expression_of_the_dashboards_can_be_evaluated(monitoring: Monitoring, prometheus: Prometheus) -> None:
    for expression in monitoring.expressions():
        prometheus.ask("query", query=expression.replace("$__rate_interval", "1m").replace("$__range", "5m"))


def test_a_site_that_fails_is_told_and_its_repair_too(cluster: Any, prometheus: Prometheus, report: Any) -> None:
    name = "e2e-broken"
    provider = {
        "endpoint": "http://127.0.0.1:9/RPC2",
        "credentialsSecretRef": {"name": name},
        "template": "worker",
    }
    site = {
        "apiVersion": "simyard.dev/v1alpha1",
        "kind": "CloudSite",
        "metadata": {"name": name},
        "spec": {"provider": {"openNebula": provider}},
    }
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "stringData": {"username": "somebody", "password": "not-known-there"},
    }
    began = time.monotonic()
    cluster.apply(secret, namespace=cluster.release_namespace)
    try:
        cluster.apply(site)
        fires = _fires(prometheus, "SimyardSiteBroken")
        cluster.wait_for("the alert of a site that fails", fires, seconds=ALERT_SECONDS)
        report.add("Monitoring", "a site fails: alert after", round(time.monotonic() - began), "s")
    finally:
        cluster.kubectl("delete", "cloudsite", name, "--ignore-not-found")
        cluster.kubectl("delete", "secret", name, "-n", cluster.release_namespace)
    cluster.wait_for("the end of the alert", lambda: not fires(), seconds=ALERT_SECONDS)


def test_operators_that_are_gone_are_told_and_their_return_too(
    cluster: Any, prometheus: Prometheus, report: Any
) -> None:
    where = ["deployment/simyard-operator", "-n", cluster.release_namespace]
    replicas = cluster.get(*where)["spec"]["replicas"]
    fires = _fires(prometheus, "SimyardNoLeader")
    cluster.wait_for("a leader", lambda: not fires(), seconds=ALERT_SECONDS)
    began = time.monotonic()
    try:
        cluster.kubectl("scale", *where, "--replicas=0")
        cluster.wait_for("the alert of no leader", fires, seconds=ALERT_SECONDS)
        report.add("Monitoring", "no operator runs: alert after", round(time.monotonic() - began), "s")
    finally:
        cluster.kubectl("scale", *where, f"--replicas={replicas}")
        cluster.kubectl("rollout", "status", *where, "--timeout=110s")
    cluster.wait_for("the end of the alert", lambda: not fires(), seconds=ALERT_SECONDS)


def _fires(prometheus: Prometheus, alert: str) -> Any:
    return lambda: alert in prometheus.firing()
