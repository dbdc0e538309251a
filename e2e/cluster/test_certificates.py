# SPDX-License-Identifier: Apache-2.0
"""Serving certificates are replaced during work: servers take up the new ones, and clients notice nothing."""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import Iterator
from typing import Any

import certificates
import counting
import faults
import load as loads
import pytest
from certificates import Authority
from load import Load

POOL = "pool"
REPLICAS = 2
TAKEN_UP_SECONDS = 420.0
"""Deadline: the kubelet updates a changed Secret within a minute, RabbitMQ caches certificates for up to two."""
PARTS = {
    "apiserver": ("app.kubernetes.io/component=apiserver", 8443),
    "frontend": ("app.kubernetes.io/component=frontend", 8443),
    "broker": ("app.kubernetes.io/name=simyard-broker", 5671),
}


@pytest.fixture(scope="module")
def load(cluster: Any) -> Iterator[Load]:
    with cluster.namespace("certificates") as namespace:
        pool = counting.pool(POOL, REPLICAS, cluster.site)
        cluster.apply(loads.service(cluster, namespace), pool, namespace=namespace)
        yield loads.start(cluster, namespace, POOL, REPLICAS)
        cluster.kubectl("delete", "workerpool", POOL, "-n", namespace)


def test_new_serving_certificates_are_taken_up_and_nothing_breaks(cluster: Any, load: Load, report: Any) -> None:
    load.check_all_ended()
    load.send("mark")
    workers, began = load.workers(), time.time()
    renewed = {part: _renew(cluster, f"simyard-{part}-tls") for part in PARTS}
    for part, serial in renewed.items():
        cluster.wait_for(
            f"the new certificate of every {part}",
            lambda part=part, serial=serial: set(_served(cluster, part).values()) == {serial},
            seconds=TAKEN_UP_SECONDS,
        )
        report.add(
            "Certificates", f"new certificate of {part}: served by all pods after", round(time.time() - began), "s"
        )
    load.asked_since(time.time(), 10)
    load.check_all_ended()
    answers = load.report()["answers"]
    assert {kind: counts["bad"] for kind, counts in answers.items() if counts["bad"]} == {}
    assert all(counts["good"] for counts in answers.values())
    assert load.failures() == {}
    assert load.workers() == workers


def test_connections_made_anew_trust_the_new_certificates(cluster: Any, load: Load) -> None:
    """A killed operator and a killed worker reconnect to the broker with its new certificate."""
    release = cluster.release_namespace
    [operator, *_] = faults.names(cluster.get("pods", "-n", release, "-l", "app.kubernetes.io/component=operator"))
    faults.kill(cluster, release, operator)
    [pod, *_] = faults.names(cluster.get("pods", "-n", load.namespace, "-l", f"simyard.dev/pool={POOL}"))
    faults.kill(cluster, load.namespace, pod)
    cluster.wait_for("everything to be whole", load.is_whole, seconds=TAKEN_UP_SECONDS)
    load.asked_since(time.time(), 10)
    load.check_all_ended()


def _renew(cluster: Any, secret: str) -> int:
    """Put a new certificate of the same CA and names into a Secret, as cert-manager does; return its serial number."""
    where = ["-n", cluster.release_namespace]
    data = {key: _text(value) for key, value in cluster.get("secret", secret, *where)["data"].items()}
    ca = {key: _text(value) for key, value in cluster.get("secret", "simyard-ca", *where)["data"].items()}
    hosts = certificates.hosts_of(data["tls.crt"])
    certificate, key = Authority.read(ca["tls.crt"], ca["tls.key"]).issue(*hosts)
    renewed = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": secret},
        "stringData": {"tls.crt": certificate, "tls.key": key},
    }
    cluster.apply(renewed, namespace=cluster.release_namespace)
    return certificates.serial_of(certificate)


def _served(cluster: Any, part: str) -> dict[str, int]:
    """Return the serial number of the certificate that each pod of a component serves now."""
    labels, port = PARTS[part]
    found = {}
    for pod in faults.names(cluster.get("pods", "-n", cluster.release_namespace, "-l", labels)):
        with cluster.forward(cluster.release_namespace, f"pod/{pod}", port) as local:
            found[pod] = certificates.serial_of(ssl.get_server_certificate(("127.0.0.1", local), timeout=30))
    assert found
    return found


def _text(value: str) -> str:
    return base64.b64decode(value).decode()
