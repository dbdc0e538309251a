# SPDX-License-Identifier: Apache-2.0
"""The RabbitmqCluster of the chart."""

import pytest
from helm_release import Helm, of_kind

pytestmark = pytest.mark.xdist_group("chart")


def test_the_broker_asks_its_clients_for_no_certificate(helm: Helm) -> None:
    broker = of_kind(helm.render("broker.mode=operator"), "RabbitmqCluster")["simyard-broker"]
    assert broker["spec"]["tls"] == {"secretName": "simyard-broker-tls", "disableNonTLSListeners": True}


def test_a_node_of_the_broker_that_never_listens_is_restarted(helm: Helm) -> None:
    broker = of_kind(helm.render("broker.mode=operator"), "RabbitmqCluster")["simyard-broker"]
    [container] = broker["spec"]["override"]["statefulSet"]["spec"]["template"]["spec"]["containers"]
    probe = container["livenessProbe"]
    assert probe["tcpSocket"] == {"port": "amqps"}
    # RabbitMQ waits up to five minutes for the other nodes before it gives up by itself.
    assert probe["periodSeconds"] * probe["failureThreshold"] > 300


def test_pods_of_the_brokers_operator_are_restricted(helm: Helm) -> None:
    broker = of_kind(helm.render("broker.mode=operator"), "RabbitmqCluster")["simyard-broker"]
    pod = broker["spec"]["override"]["statefulSet"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*pod["initContainers"], *pod["containers"]):
        context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert container["securityContext"] == context


def test_nodes_of_the_broker_are_kept_apart_where_nodes_suffice(helm: Helm) -> None:
    broker = of_kind(helm.render("broker.mode=operator"), "RabbitmqCluster")["simyard-broker"]
    [constraint] = broker["spec"]["override"]["statefulSet"]["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert constraint["topologyKey"] == "kubernetes.io/hostname"
    assert (constraint["whenUnsatisfiable"], constraint["nodeTaintsPolicy"]) == ("DoNotSchedule", "Honor")
