# SPDX-License-Identifier: Apache-2.0
"""The chart, rendered by Helm and installed on a real API server without nodes, so that no pod runs."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest
from cryptography import x509
from helm_release import (
    CHART,
    EXISTING,
    NAMESPACE,
    ROOT,
    Helm,
    container_of,
    frontend_pod,
    of_kind,
    read_manifests,
)

from simyard.api.frontend_pod import FrontendPod
from simyard.manifests.frontend import KINDS

VARIANTS = {
    "default": (),
    "everything": (
        "broker.mode=operator",
        "certificates.mode=certManager",
        "priorityClass.create=true",
        "monitoring.podMonitors.enabled=true",
        "monitoring.rules.enabled=true",
        "frontends.domain=sim.example.org",
        "frontends.cloud4e=true",
        "broker.workers.host=broker.example.org",
        "broker.workers.port=5671",
        "image.pullSecrets={one,two}",
        "operator.nodeSelector.pool=system",
        "frontends.nodeSelector.pool=system",
    ),
    "least": (*EXISTING, "apiserver.enabled=false", "frontends.enabled=false", "operator.replicas=1"),
    "broker of its own, without TLS": (*EXISTING, "broker.existing.tls=false"),
    "CA of the broker elsewhere": (*EXISTING, "broker.existing.caSecretName=theirs"),
}

pytestmark = pytest.mark.xdist_group("chart")


def secret(helm: Helm, name: str) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in helm.get("secret", name)["data"].items()}


def test_helm_finds_nothing_to_complain_about(helm: Helm) -> None:
    said = helm.done("lint", str(CHART), "--strict")
    assert "1 chart(s) linted, 0 chart(s) failed" in said


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_the_api_server_takes_everything_without_a_warning(helm: Helm, values: tuple[str, ...]) -> None:
    helm.dry_run([item for item in helm.render(*values) if item["kind"] != "Pod"])  # its account is missing


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("operator.replica=2", "'replica' not allowed"),
        ("operator.replicas=0", "/operator/replicas"),
        ("broker.mode=none", "/broker/mode"),
        ("broker.replicas=2", "/broker/replicas"),
        ("broker.mode=existing", "broker.existing.secretName"),
        ("installation=My_Own", "/installation"),
        ("operator=null", "missing property 'operator'"),
        ("operator.nodeSelector=null", "missing property 'nodeSelector'"),
        ("operator.enabled=false", "'enabled' not allowed"),
        ("operator.resources.request.cpu=1", "'request' not allowed"),
        ("apiserver.leaseSeconds=5", "'leaseSeconds' not allowed"),
        ("apiserver.metricsPort=8443", "apiserver.metricsPort"),
        ("frontends.logLevel=loud", "/frontends/logLevel"),
        ("frontends.resources.request.cpu=1", "'request' not allowed"),
        ("broker.image=", "/broker/image"),
        ("broker.existing.url=amqp://broker", "'url' not allowed"),
        ("broker.workers.host=broker.example.org:5671", "/broker/workers/host"),
        ("certificates.certManager.duration=90d", "/certificates/certManager/duration"),
        ("certificates.certManager.issuerRef.kind=ClusterIssuer", "'name' required"),
    ],
)
def test_wrong_values_are_refused_by_name(helm: Helm, value: str, said: str) -> None:
    done = helm.run("template", "simyard", str(CHART), f"--set={value}")
    assert done.returncode != 0
    assert said in done.stderr


def test_every_value_is_explained() -> None:
    """Every value has a comment ``# --`` above it, or above the value that contains it."""
    explained: dict[int, bool] = {}
    missing = []
    comment = False
    for line in (CHART / "values.yaml").read_text().splitlines():
        if line.lstrip().startswith("#"):
            comment = comment or "# --" in line
            continue
        if found := re.fullmatch(r"( *)(\w+):(.*)", line):
            depth = len(found[1]) // 2
            explained[depth] = comment or explained.get(depth - 1, False)
            if found[3] and not explained[depth]:
                missing.append(line)
        comment = False
    assert explained
    assert not missing


@pytest.mark.parametrize("document", ["install.md", "kind.md", "monitoring.md"])
def test_the_values_of_the_documents_are_taken(helm: Helm, document: str, tmp_path: Path) -> None:
    found = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs" / document).read_text(), re.MULTILINE | re.DOTALL)
    assert found
    for number, values in enumerate(found):
        (tmp_path / f"{number}.yaml").write_text(values)
        helm.done("template", "simyard", str(CHART), f"--values={tmp_path / f'{number}.yaml'}")


def test_names_that_look_like_numbers_stay_text(helm: Helm) -> None:
    for values in VARIANTS.values():
        sets = [f"--set={value}" for value in values]
        text = helm.done("template", "123", str(CHART), "--namespace=007", *sets)
        for item in read_manifests(text):
            found = item.get("metadata", {})
            texts = [found.get("namespace", ""), *found.get("labels", {}).values()]
            assert all(isinstance(value, str) for value in texts), item


def test_all_pods_of_ours_may_pull_their_image(helm: Helm) -> None:
    wanted = [{"name": "one"}, {"name": "two"}]
    for mode in ("embedded", "operator"):
        rendered = helm.render("image.pullSecrets={one,two}", f"broker.mode={mode}")
        for account in of_kind(rendered, "ServiceAccount").values():
            assert account["imagePullSecrets"] == wanted
        assert frontend_pod(container_of(rendered, "operator")).image_pull_secrets == ["one", "two"]
        pods = [of_kind(rendered, "Pod")["simyard-test"]["spec"]]
        for kind in ("Deployment", "StatefulSet"):
            pods += [item["spec"]["template"]["spec"] for item in of_kind(rendered, kind).values()]
        pods += [item["spec"] for item in of_kind(rendered, "RabbitmqCluster").values()]
        assert len(pods) == 4
        assert all(pod["imagePullSecrets"] == wanted for pod in pods)


def test_pods_have_the_priority_class(helm: Helm) -> None:
    rendered = helm.render("priorityClass.name=urgent", "broker.mode=operator")
    for deployment in of_kind(rendered, "Deployment").values():
        assert deployment["spec"]["template"]["spec"]["priorityClassName"] == "urgent"
    [operator] = of_kind(rendered, "Deployment")["simyard-operator"]["spec"]["template"]["spec"]["containers"]
    assert frontend_pod(operator).priority_class_name == "urgent"
    broker = of_kind(rendered, "RabbitmqCluster")["simyard-broker"]["spec"]["override"]["statefulSet"]["spec"]
    assert broker["template"]["spec"]["priorityClassName"] == "urgent"
    [operator] = of_kind(helm.render(), "Deployment")["simyard-operator"]["spec"]["template"]["spec"]["containers"]
    assert frontend_pod(operator).priority_class_name == ""


def test_the_operator_takes_what_the_values_say_of_frontends(helm: Helm, tmp_path: Path) -> None:
    def told(*arguments: str) -> FrontendPod:
        rendered = read_manifests(helm.done("template", "simyard", str(CHART), *arguments))
        return frontend_pod(container_of(rendered, "operator"))

    requests = {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "64Mi"}
    default = {"requests": requests, "limits": {"memory": "512Mi"}}
    assert told() == FrontendPod.from_json(
        json.dumps({"resources": default, "imagePullPolicy": "IfNotPresent", "logLevel": "info"})
    )
    said = {
        "resources": {
            "requests": {"cpu": 0.5, "memory": 1000000000, "ephemeral-storage": "1Mi"},
            "limits": {"memory": "1Gi"},
        },
        "logLevel": "debug",
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "pool", "operator": "Exists", "tolerationSeconds": 300}],
        "affinity": {"nodeAffinity": {"x": "y"}},
        "podAnnotations": {"text": '$(HOME) costs $$5 & "more"'},
        "podLabels": {"team": "simulation"},
        "topologySpreadConstraints": [{"topologyKey": "rack"}],
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "extraVolumes": [{"name": "ca", "configMap": {"name": "proxy"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca"}],
    }
    (tmp_path / "values.yaml").write_text(json.dumps({"frontends": said, "image": {"pullPolicy": "Always"}}))
    wanted = FrontendPod.from_json(json.dumps({**said, "imagePullPolicy": "Always"}))
    assert told(f"--values={tmp_path / 'values.yaml'}") == wanted


def test_while_frontends_are_off_the_operator_may_remove_those_that_are_there(helm: Helm) -> None:
    rendered = helm.render("frontends.enabled=false")
    [operator] = of_kind(rendered, "Deployment")["simyard-operator"]["spec"]["template"]["spec"]["containers"]
    assert not any(item.startswith("--frontend") for item in operator["args"])
    rules = of_kind(rendered, "Role")["simyard-operator"]["rules"]
    for kind in KINDS:
        assert any(
            rule["resources"] == [kind.plural] and {"list", "watch", "delete"} <= set(rule["verbs"]) for rule in rules
        )


def test_what_is_switched_off_has_no_account(helm: Helm) -> None:
    accounts = of_kind(helm.render(*VARIANTS["least"]), "ServiceAccount")
    assert set(accounts) == {"simyard-operator"}


def test_rendered_without_a_cluster_it_is_the_same_each_time(helm: Helm) -> None:
    """Tools that apply the output of `helm template` need this: with cert-manager, and with an external broker."""
    for broker in (("broker.mode=operator",), EXISTING):
        sets = [f"--set={value}" for value in ("certificates.mode=certManager", *broker)]
        first, second = (helm.done("template", "simyard", str(CHART), *sets) for _ in range(2))
        assert first == second


def test_a_certificate_names_hosts_and_addresses_apart(helm: Helm) -> None:
    for name, kind in (("broker.example.org", x509.DNSName), ("10.1.2.3", x509.IPAddress)):
        data = of_kind(helm.render(f"broker.workers.host={name}"), "Secret")["simyard-broker-tls"]["data"]
        made = x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"]))
        found = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert [type(item) for item in found if str(item.value) == name] == [kind]
    values = ("certificates.mode=certManager", "broker.workers.host=10.1.2.3")
    spec = of_kind(helm.render(*values), "Certificate")["simyard-broker"]["spec"]
    assert (spec["dnsNames"], spec["ipAddresses"]) == ([f"simyard-broker.{NAMESPACE}.svc"], ["10.1.2.3"])


def test_pods_are_spread_over_nodes_that_have_no_zone_too(helm: Helm) -> None:
    """The scheduler ignores a node for all constraints when it lacks the label of one of them."""
    for deployment in of_kind(helm.render(), "Deployment").values():
        pod = deployment["spec"]["template"]["spec"]
        assert [item["topologyKey"] for item in pod["topologySpreadConstraints"]] == ["kubernetes.io/hostname"]
        wanted = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert [item["podAffinityTerm"]["topologyKey"] for item in wanted] == ["topology.kubernetes.io/zone"]
    theirs = of_kind(helm.render("operator.affinity.nodeAffinity.x=y"), "Deployment")["simyard-operator"]
    assert theirs["spec"]["template"]["spec"]["affinity"] == {"nodeAffinity": {"x": "y"}}


def test_the_authority_outlives_the_release(helm: Helm) -> None:
    secret = of_kind(helm.render(), "Secret")["simyard-ca"]
    assert secret["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_no_secret_is_an_argument_or_a_variable(helm: Helm) -> None:
    for deployment in of_kind(helm.render(), "Deployment").values():
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        assert not re.search("password|amqps?://", json.dumps(container).lower())


def test_alerts_and_dashboards_ask_for_metrics_that_exist(helm: Helm) -> None:
    [rules] = of_kind(helm.render("monitoring.rules.enabled=true"), "PrometheusRule").values()
    alerts = [rule for group in rules["spec"]["groups"] for rule in group["rules"]]
    folders = (ROOT / "operator" / "simyard", ROOT / "adapters" / "sites" / "simyard_sites")
    source = "\n".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    documented = (ROOT / "docs" / "monitoring.md").read_text()
    for alert in alerts:
        assert f"### {alert['alert']}" in documented
    dashboards = of_kind(helm.render("monitoring.dashboards.enabled=true"), "ConfigMap")["simyard-dashboards"]["data"]
    asked = [alert["expr"] for alert in alerts]
    asked += [
        target["expr"]
        for text in dashboards.values()
        for panel in json.loads(text)["panels"]
        for target in panel["targets"]
    ]
    for metric in re.findall(r"simyard_\w+", "\n".join(asked)):
        assert f'"{re.sub("_(bucket|count|sum)$", "", metric)}"' in source, f"no process has {metric}"


class TestInstalled:
    """One release from installation to removal; the order of these tests matters."""

    def test_it_is_installed_with_certificates_that_its_own_authority_signed(self, helm: Helm) -> None:
        helm.done("install", "simyard", str(CHART))
        authority = x509.load_pem_x509_certificate(secret(helm, "simyard-ca")["tls.crt"])
        for component, host in (
            ("apiserver", "simyard-apiserver.simyard-system.svc"),
            ("frontend", "*.simyard-system.svc"),
            ("broker", "simyard-broker.simyard-system.svc"),
        ):
            data = secret(helm, f"simyard-{component}-tls")
            made = x509.load_pem_x509_certificate(data["tls.crt"])
            made.verify_directly_issued_by(authority)
            names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            assert names.get_values_for_type(x509.DNSName) == [host]
            assert data["ca.crt"] == secret(helm, "simyard-ca")["tls.crt"]
        bundle = helm.get("apiservice", "v1alpha1.subresources.simyard.dev")["spec"]["caBundle"]
        assert base64.b64decode(bundle) == secret(helm, "simyard-ca")["tls.crt"]

    def test_the_test_of_the_release_may_run(self, helm: Helm) -> None:
        helm.dry_run(list(of_kind(helm.render(), "Pod").values()))

    def test_an_upgrade_keeps_password_and_certificates(self, helm: Helm) -> None:
        kept = ("simyard-ca", "simyard-broker", "simyard-broker-tls", "simyard-apiserver-tls")
        before = [secret(helm, name) for name in kept]
        helm.done("upgrade", "simyard", str(CHART), "--set=operator.replicas=3")
        assert [secret(helm, name) for name in kept] == before
        assert helm.get("deployment", "simyard-operator")["spec"]["replicas"] == 3

    def test_a_certificate_that_was_deleted_is_made_anew_by_the_same_authority(self, helm: Helm) -> None:
        before = secret(helm, "simyard-apiserver-tls")
        helm.control_plane.kubectl("-n", NAMESPACE, "delete", "secret", "simyard-apiserver-tls")
        helm.done("upgrade", "simyard", str(CHART))
        after = secret(helm, "simyard-apiserver-tls")
        assert after["tls.crt"] != before["tls.crt"]
        assert after["ca.crt"] == before["ca.crt"]

    def test_another_name_of_the_broker_makes_another_certificate_and_no_other(self, helm: Helm) -> None:
        before = {name: secret(helm, f"simyard-{name}-tls") for name in ("broker", "apiserver", "frontend")}
        helm.done("upgrade", "simyard", str(CHART), "--set=broker.workers.host=broker.example.org")
        after = {name: secret(helm, f"simyard-{name}-tls") for name in before}
        assert [name for name in before if after[name] != before[name]] == ["broker"]
        made = x509.load_pem_x509_certificate(after["broker"]["tls.crt"])
        names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert "broker.example.org" in names.get_values_for_type(x509.DNSName)
        assert after["broker"]["ca.crt"] == before["broker"]["ca.crt"]
        helm.done("upgrade", "simyard", str(CHART), "--set=broker.workers.host=broker.example.org")
        assert secret(helm, "simyard-broker-tls") == after["broker"]

    def test_it_goes_and_keeps_the_kinds(self, helm: Helm) -> None:
        helm.done("uninstall", "simyard")
        left = helm.get("crd,apiservice,clusterrole,validatingadmissionpolicy")["items"]
        ours = [item for item in left if "simyard" in item["metadata"]["name"]]
        kinds = {item["metadata"]["name"].split(".")[0] for item in ours if item["kind"] == "CustomResourceDefinition"}
        assert {"workers", "workerpools", "cloudsites"} <= kinds
        # APIServices that kube-apiserver creates for the kinds do not count.
        others = [item for item in ours if item["kind"] not in ("CustomResourceDefinition", "APIService")]
        assert not others
        assert "v1alpha1.subresources.simyard.dev" not in {item["metadata"]["name"] for item in ours}


@pytest.mark.parametrize("mode", ["embedded", "operator"])
def test_only_the_operator_reaches_the_management_api_of_the_broker(helm: Helm, mode: str) -> None:
    policy = of_kind(helm.render(f"broker.mode={mode}"), "NetworkPolicy")["simyard-broker"]["spec"]
    who = [
        rule.get("from")
        for rule in policy["ingress"]
        if any(port["port"] == 15671 for port in rule.get("ports", [])) or not rule.get("ports")
    ]
    component = "app.kubernetes.io/component"
    [operators, *peers] = [peer["podSelector"]["matchLabels"] for rule in who for peer in rule]
    assert operators[component] == "operator"
    assert all(labels == {"app.kubernetes.io/name": "simyard-broker"} for labels in peers)


@pytest.mark.parametrize("mode", ["embedded", "operator"])
def test_the_broker_is_scraped_on_a_port_that_its_network_policy_opens(helm: Helm, mode: str) -> None:
    rendered = helm.render(f"broker.mode={mode}", "monitoring.podMonitors.enabled=true")
    monitor = of_kind(rendered, "PodMonitor")["simyard-broker"]["spec"]
    policy = of_kind(rendered, "NetworkPolicy")["simyard-broker"]["spec"]
    assert monitor["selector"] == policy["podSelector"]
    [endpoint] = monitor["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["scheme"]) == ("prometheus-tls", "https")
    assert 15691 in [port["port"] for port in policy["ingress"][0]["ports"]]


def test_every_alert_has_an_entry_in_the_runbook(helm: Helm) -> None:
    rules = of_kind(helm.render("monitoring.rules.enabled=true"), "PrometheusRule")["simyard"]["spec"]
    alerts = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    headings = re.findall(r"^### (\w+)$", (ROOT / "docs" / "monitoring.md").read_text(), re.M)
    assert sorted(alerts) == sorted(headings)
