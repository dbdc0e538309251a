# SPDX-License-Identifier: Apache-2.0
"""The effects of single values of the chart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helm_release import (
    CHART,
    EXISTING,
    NAMESPACE,
    Helm,
    Manifest,
    container_of,
    frontend_pod,
    of_kind,
    pod_of,
    read_manifests,
)

from simyard.api.frontend_route import FrontendRoute, GatewayRoute
from simyard.manifests.frontend import DEPLOYMENTS, FrontendTemplate, build_frontend

DIGEST = f"sha256:{'0a' * 32}"
ROLES = ("operator", "apiserver")
pytestmark = pytest.mark.xdist_group("chart")


def rendered(helm: Helm, folder: Path, values: Manifest) -> list[Manifest]:
    (folder / "values.yaml").write_text(json.dumps(values))
    text = helm.done("template", "simyard", str(CHART), f"--values={folder / 'values.yaml'}")
    return read_manifests(text)


def frontend_deployment(manifests: list[Manifest], replicas: int = 2) -> Manifest:
    """Return the Deployment that the operator creates from its arguments."""
    template = FrontendTemplate(
        "image", NAMESPACE, "tls", "domain", pod=frontend_pod(container_of(manifests, "operator"))
    )
    [found] = [item for item in build_frontend("plant", "beam", replicas, template) if item["kind"] == DEPLOYMENTS.kind]
    return found


def all_pods(manifests: list[Manifest]) -> list[Any]:
    """Return the specs of all pods: of Deployments, of the broker, of frontends, of the test."""
    kinds = ("Deployment", "StatefulSet")
    own = [item["spec"]["template"]["spec"] for kind in kinds for item in of_kind(manifests, kind).values()]
    tests = [item["spec"] for item in of_kind(manifests, "Pod").values()]
    return [*own, *tests, frontend_deployment(manifests)["spec"]["template"]["spec"]]


def test_the_image_has_a_registry_and_a_digest(helm: Helm) -> None:
    manifests = helm.render("image.registry=registry.example.org/mirror", "image.tag=v1", f"image.digest={DIGEST}")
    wanted = f"registry.example.org/mirror/simyard:v1@{DIGEST}"
    assert [container_of(manifests, role)["image"] for role in ROLES] == [wanted, wanted]
    assert f"--frontend-image={wanted}" in container_of(manifests, "operator")["args"]
    [test] = of_kind(manifests, "Pod")["simyard-test"]["spec"]["containers"]
    assert test["image"] == wanted


def test_common_labels_are_on_every_object_and_pod_and_replace_none_of_ours(helm: Helm, tmp_path: Path) -> None:
    common = {"cost-centre": "007", "app.kubernetes.io/part-of": "other"}
    manifests = rendered(helm, tmp_path, {"commonLabels": common, "operator": {"podLabels": {"team": "x"}}})
    pods = [pod_of(manifests, role) for role in ROLES]
    made = frontend_deployment(manifests)
    for item in (*manifests, *pods, made, made["spec"]["template"]):
        labels = item["metadata"]["labels"]
        assert (labels["cost-centre"], labels["app.kubernetes.io/part-of"]) == ("007", "simyard"), item
    assert [pod["metadata"]["labels"].get("team") for pod in pods] == ["x", None]
    for role, deployment in of_kind(manifests, "Deployment").items():
        selector = deployment["spec"]["selector"]["matchLabels"]
        assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items(), role
        assert "cost-centre" not in selector


@pytest.mark.parametrize("role", ["operator", "apiserver", "frontends"])
def test_an_account_has_its_annotations_and_no_other_has_them(helm: Helm, tmp_path: Path, role: str) -> None:
    wanted = {"cloud.example/role": "arn"}
    manifests = rendered(helm, tmp_path, {role: {"serviceAccount": {"annotations": wanted}}})
    found = {
        name: account["metadata"].get("annotations", {})
        for name, account in of_kind(manifests, "ServiceAccount").items()
    }
    found["simyard-frontends"] = frontend_pod(container_of(manifests, "operator")).account_annotations
    assert found == {name: wanted if name == f"simyard-{role}" else {} for name in found}


def test_a_proxy_and_its_ca_reach_every_role(helm: Helm, tmp_path: Path) -> None:
    env = [{"name": "HTTPS_PROXY", "value": "http://proxy.example.org:3128"}]
    volume, mount = {"name": "ca", "configMap": {"name": "proxy-ca"}}, {"name": "ca", "mountPath": "/etc/proxy"}
    more = {"extraEnv": env, "extraVolumes": [volume], "extraVolumeMounts": [mount]}
    manifests = rendered(helm, tmp_path, {"operator": more, "apiserver": more, "frontends": more})
    for pod in (
        *(pod_of(manifests, role)["spec"] for role in ROLES),
        frontend_deployment(manifests)["spec"]["template"]["spec"],
    ):
        [container] = pod["containers"]
        assert container["env"] == env
        assert volume in pod["volumes"]
        assert mount in container["volumeMounts"]
    helm.dry_run(list(of_kind(manifests, "Deployment").values()))


def test_the_platform_may_choose_the_user(helm: Helm) -> None:
    """OpenShift's restricted-v2 refuses pods that name a user or group outside the range of the namespace."""
    ids = ("runAsUser", "runAsGroup", "fsGroup")
    none = [f"{context}.{name}=null" for context in ("podSecurityContext", "broker.podSecurityContext") for name in ids]
    pods = all_pods(helm.render(*none))
    assert len(pods) == 5
    for pod in pods:
        assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    for pod in all_pods(helm.render()):
        assert set(ids) < set(pod["securityContext"])


def test_every_container_requests_storage_of_its_node(helm: Helm) -> None:
    for pod in all_pods(helm.render()):
        for container in pod["containers"]:
            assert container["resources"]["requests"]["ephemeral-storage"]


# Replicas on different nodes


def spread(manifests: list[Manifest], role: str) -> tuple[str, str, int]:
    pod = frontend_deployment(manifests)["spec"]["template"] if role == "frontends" else pod_of(manifests, role)
    [constraint] = pod["spec"]["topologySpreadConstraints"]
    assert constraint["topologyKey"] == "kubernetes.io/hostname"
    assert constraint["labelSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    return constraint["whenUnsatisfiable"], constraint["nodeTaintsPolicy"], constraint["maxSkew"]


@pytest.mark.parametrize("role", [*ROLES, "frontends"])
def test_replicas_are_spread_as_strictly_as_the_values_say(helm: Helm, role: str) -> None:
    assert spread(helm.render(), role) == ("DoNotSchedule", "Honor", 1)
    assert spread(helm.render("spread=required"), role) == ("DoNotSchedule", "Ignore", 1)
    assert spread(helm.render("spread=preferred"), role) == ("ScheduleAnyway", "Honor", 1)
    own = helm.render(f"{role}.topologySpreadConstraints[0].topologyKey=rack")
    pod = frontend_deployment(own)["spec"]["template"] if role == "frontends" else pod_of(own, role)
    assert pod["spec"]["topologySpreadConstraints"] == [{"topologyKey": "rack"}]


def test_more_replicas_than_nodes_are_scheduled_but_never_all_on_one_node(helm: Helm) -> None:
    for replicas, skew in ((1, 1), (2, 1), (3, 2), (5, 4)):
        manifests = helm.render("spread=required", f"operator.replicas={replicas}")
        assert spread(manifests, "operator")[2] == skew
        [constraint] = frontend_deployment(manifests, replicas)["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert constraint["maxSkew"] == skew


@pytest.fixture
def nodes(helm: Helm) -> Iterator[dict[str, Manifest]]:
    """Create one node that accepts pods, and one whose taint rejects them."""
    made = {name: {"labels": {"kubernetes.io/os": "linux", "size": name}} for name in ("small", "large")}
    items = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **meta}} for name, meta in made.items()]
    helm.control_plane.kubectl(
        "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    )
    yield made
    helm.control_plane.kubectl("delete", "node", *made)


def test_two_nodes_that_take_pods_make_the_spread_required(helm: Helm, nodes: dict[str, Manifest]) -> None:
    def mode(*values: str) -> str:
        text = helm.done("template", "simyard", str(CHART), "--dry-run=server", *(f"--set={value}" for value in values))
        return spread(read_manifests(text), "operator")[1]

    # A new node has the taint not-ready, which is temporary and does not count.
    assert mode() == "Ignore"
    assert mode("operator.nodeSelector.size=small") == "Honor"
    helm.control_plane.kubectl("taint", "node", "large", "gpu=yes:NoSchedule")
    assert mode() == "Honor"


def test_only_the_operator_reaches_the_management_of_the_broker(helm: Helm) -> None:
    for mode in ("embedded", "operator"):
        policy = of_kind(helm.render(f"broker.mode={mode}"), "NetworkPolicy")["simyard-broker"]["spec"]
        rules = [rule for rule in policy["ingress"] if "ports" in rule]
        open_to = {port["port"]: rule.get("from") for rule in rules for port in rule["ports"]}
        labels = {"app.kubernetes.io/part-of": "simyard", "app.kubernetes.io/component": "operator"}
        open_to.pop(15691, None)  # the broker's metrics
        assert open_to == {5671: None, 15671: [{"podSelector": {"matchLabels": labels}}]}
    pod = pod_of(helm.render(), "operator")
    assert labels.items() <= pod["metadata"]["labels"].items()


# Names


def test_another_name_is_everywhere_and_what_refers_to_it_follows(helm: Helm) -> None:
    values = ("fullnameOverride=acme", "nameOverride=sim", "certificates.mode=certManager", *EXISTING)
    manifests = helm.render(*values)
    accounts = set(of_kind(manifests, "ServiceAccount"))
    assert accounts == {"acme-operator", "acme-apiserver"}
    for kind in ("Deployment", "Service", "Certificate", "Issuer", "NetworkPolicy", "PodDisruptionBudget"):
        found = of_kind(manifests, kind)
        assert found
        assert all(name == "acme" or name.startswith("acme-") for name in found)
    roles = {kind: set(of_kind(manifests, kind)) for kind in ("Role", "ClusterRole")}
    builtin = {"extension-apiserver-authentication-reader"}
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        for binding in of_kind(manifests, kind).values():
            group = f"system:serviceaccounts:{NAMESPACE}"
            assert {subject["name"] for subject in binding["subjects"]} <= {*accounts, group}
            assert binding["roleRef"]["name"] in roles[binding["roleRef"]["kind"]] | builtin
    for role in ROLES:
        assert pod_of(manifests, role, "acme")["spec"]["serviceAccountName"] == f"acme-{role}"
    [operator] = pod_of(manifests, "operator", "acme")["spec"]["containers"]
    assert frontend_pod(operator).role == "acme-frontend"
    assert "--frontend-tls-secret=acme-frontend-tls" in operator["args"]
    policies = json.dumps(list(of_kind(manifests, "ValidatingAdmissionPolicy").values()))
    assert f"system:serviceaccount:{NAMESPACE}:acme-operator" in policies
    assert "simyard-operator" not in json.dumps(manifests)
    service = of_kind(manifests, "APIService")["v1alpha1.subresources.simyard.dev"]["spec"]["service"]
    assert service["name"] in of_kind(manifests, "Service")
    assert {item["metadata"]["labels"]["app.kubernetes.io/name"] for item in manifests} == {"sim"}


# Watched namespaces


def test_watched_namespaces_are_all_that_the_accounts_reach(helm: Helm) -> None:
    manifests = helm.render("watchNamespaces={plant,lab}")
    for role in ROLES:
        told = [item for item in container_of(manifests, role)["args"] if item.startswith("--watch-namespace")]
        assert told == ["--watch-namespace=plant", "--watch-namespace=lab"]
    accounts = {"simyard-operator", "simyard-apiserver"}
    bindings = [item for item in manifests if item["kind"] == "RoleBinding" and item["metadata"]["name"] in accounts]
    bound = {(item["metadata"]["name"], item["metadata"]["namespace"]) for item in bindings}
    own = {(account, NAMESPACE) for account in accounts}
    assert bound == own | {(account, namespace) for account in accounts for namespace in ("plant", "lab")}
    for_cluster = of_kind(manifests, "ClusterRoleBinding")
    assert set(for_cluster) == {f"{account}-cluster" for account in (*accounts, "simyard-frontend")}
    without_namespace = {"cloudsites", "licences", "customresourcedefinitions", "tokenreviews", "subjectaccessreviews"}
    without_namespace |= {"namespaces"}
    for name in for_cluster:
        for rule in of_kind(manifests, "ClusterRole")[name]["rules"]:
            assert {resource.partition("/")[0] for resource in rule["resources"]} <= without_namespace


# Ingress and Gateway


def frontend_route(manifests: list[Manifest]) -> FrontendRoute:
    [value] = [
        item.partition("=")[2]
        for item in container_of(manifests, "operator")["args"]
        if item.startswith("--frontend-route=")
    ]
    return FrontendRoute.from_json(value.replace("$$", "$"))


def test_without_a_way_in_nothing_is_said_of_it(helm: Helm) -> None:
    assert "--frontend-route" not in json.dumps(container_of(helm.render(), "operator"))


def test_the_objects_of_a_way_in_are_what_their_own_definitions_take(helm: Helm) -> None:
    """A real API server checks Ingress, Gateway, HTTPRoute and BackendTLSPolicy."""
    values = ("domain=occi.example.org", "ingress.enabled=true", "ingress.className=nginx", "gateway.enabled=true")
    manifests = helm.render(*(f"frontends.{value}" for value in values), "frontends.gateway.className=envoy")
    route = frontend_route(manifests)
    template = FrontendTemplate("image", NAMESPACE, "simyard-frontend-tls", "occi.example.org", route=route)
    made = build_frontend("plant", "beam", 2, template)
    assert {"Ingress", "HTTPRoute", "BackendTLSPolicy"} <= {item["kind"] for item in made}
    gateway = of_kind(manifests, "Gateway")["simyard"]
    config_map = of_kind(manifests, "ConfigMap")["simyard-frontend-ca"]
    assert "BEGIN CERTIFICATE" in config_map["data"]["ca.crt"]
    helm.dry_run([*made, gateway, config_map])
    [way] = [item["spec"] for item in made if item["kind"] == "HTTPRoute"]
    assert way["parentRefs"] == [{"name": "simyard", "namespace": NAMESPACE}]
    [listener] = gateway["spec"]["listeners"]
    assert way["hostnames"][0].endswith(listener["hostname"].removeprefix("*"))


def test_a_gateway_of_others_is_named_and_none_is_made(helm: Helm) -> None:
    theirs = ("enabled=true", "name=shared", "namespace=gateways", "sectionName=https", "caConfigMap=our-ca")
    manifests = helm.render(*(f"frontends.gateway.{value}" for value in theirs))
    assert not of_kind(manifests, "Gateway")
    wanted = GatewayRoute(name="shared", namespace="gateways", section_name="https", ca_config_map="our-ca")
    assert frontend_route(manifests) == FrontendRoute(gateway=wanted)


# Messages of Helm


def test_the_schema_describes_every_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def undescribed(part: Manifest, path: str = "") -> list[str]:
        missing = []
        for name, found in part.get("properties", {}).items():
            if "properties" in found:
                missing += undescribed(found, f"{path}.{name}")
            elif not found.get("description") and not part.get("description"):
                missing.append(f"{path}.{name}")
        return missing

    assert undescribed(schema) == [".global"]


def test_helm_warns_of_nothing(helm: Helm) -> None:
    done = helm.run("template", "simyard", str(CHART))
    assert done.returncode == 0
    assert done.stderr == ""
