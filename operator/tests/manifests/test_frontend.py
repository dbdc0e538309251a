# SPDX-License-Identifier: Apache-2.0
"""Objects of a frontend: a real API server accepts them, they are restricted, and equal the applied manifests."""

from __future__ import annotations

import copy
import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_api import Api
from simyard.api import names
from simyard.api.base import Json
from simyard.api.frontend_pod import FrontendPod
from simyard.api.quantities import canonicalize_quantity
from simyard.frontend.handlers import REQUEST_SECONDS
from simyard.frontend.server import STOP_SECONDS
from simyard.manifests.frontend import (
    FrontendTemplate,
    build_frontend,
    build_labels,
    find_owner,
    get_endpoint,
    make_object_name,
)
from simyard.plan.contents import contains

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
dns_labels = st.from_regex(LABEL, fullmatch=True)
TEMPLATE = FrontendTemplate("registry.example.org/simyard:1", "platform", "frontend-tls", "occi.example.org")

POD = FrontendPod.from_json(
    json.dumps(
        {
            "resources": {"requests": {"cpu": 0.25, "memory": "1024Mi"}, "limits": {"cpu": 2, "memory": 2e9}},
            "nodeSelector": {"pool": "system"},
            "tolerations": [
                {"key": "pool", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"operator": "Exists"},
            ],
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "fast", "operator": "Exists"}]}}
            ]}},
            "podAnnotations": {"example.org/scraped": "true"},
            "podLabels": {"team": "simulation"},
            "labels": {"cost-centre": "7"},
            "spread": "required",
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
            ],
            "role": "acme-frontend",
            "accountAnnotations": {"example.org/identity": "frontends"},
            "imagePullSecrets": ["mirror"],
            "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.org:3128"}],
            "extraVolumes": [{"name": "ca", "configMap": {"name": "proxy-ca"}}],
            "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/proxy"}],
            "podSecurityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containerSecurityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "priorityClassName": "system-cluster-critical",
            "imagePullPolicy": "Always",
            "logLevel": "debug",
        }
    )
)  # fmt: skip


def built(replicas: int = 2, template: FrontendTemplate = TEMPLATE) -> dict[str, Json]:
    return {item["kind"]: item for item in build_frontend("plant", "beam", replicas, template)}


@given(dns_labels, dns_labels)
def test_names_and_labels_are_what_kubernetes_takes(namespace: str, service: str) -> None:
    name = make_object_name(namespace, service)
    assert LABEL.fullmatch(name)
    assert name[0].isalpha(), "the name of a Service begins with a letter"
    assert all(len(value) <= 63 for value in build_labels(namespace, service).values())
    assert find_owner(build_labels(namespace, service)) == (namespace, service)


@given(dns_labels, dns_labels, dns_labels, dns_labels)
def test_two_services_never_share_a_name(namespace: str, service: str, other: str, another: str) -> None:
    if (namespace, service) != (other, another):
        assert make_object_name(namespace, service) != make_object_name(other, another)
    assert make_object_name("a-b", "c") != make_object_name("a", "b-c")


def test_what_is_not_a_frontends_belongs_to_nobody() -> None:
    marks = build_labels("plant", "beam")
    assert find_owner({}) is None
    assert find_owner({**marks, "app.kubernetes.io/component": "apiserver"}) is None
    assert find_owner({name: value for name, value in marks.items() if name != names.LABEL_SERVICE}) is None


def digest(manifest: Json) -> str:
    return str(manifest["metadata"]["annotations"][names.ANNOTATION_MANIFEST])


def test_building_again_means_the_same_and_a_change_shows_in_the_digest() -> None:
    assert built() == built()
    image = FrontendTemplate("other", TEMPLATE.namespace, TEMPLATE.tls_secret, TEMPLATE.domain)
    assert digest(built(template=image)["Deployment"]) != digest(built()["Deployment"])
    assert digest(built(template=image)["Service"]) == digest(built()["Service"])


def test_its_pods_are_as_the_installation_says() -> None:
    made = built(template=replace(TEMPLATE, pod=POD))["Deployment"]["spec"]["template"]
    pod, [container] = made["spec"], made["spec"]["containers"]
    assert made["metadata"]["annotations"] == {"example.org/scraped": "true"}
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "system"}
    assert pod["tolerations"] == [
        {"key": "pool", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"operator": "Exists"},
    ]
    assert pod["affinity"] == POD.affinity
    assert pod["priorityClassName"] == "system-cluster-critical"
    assert container["imagePullPolicy"] == "Always"
    assert container["resources"] == {
        "requests": {"cpu": "250m", "memory": "1Gi"},
        "limits": {"cpu": "2", "memory": "2G"},
    }
    assert "--log-level=debug" in container["args"]


@pytest.mark.parametrize("field", sorted(FrontendPod.model_fields))
def test_whatever_is_said_of_its_pods_shows_in_the_digest(field: str) -> None:
    pod = FrontendPod().model_copy(update={field: getattr(POD, field)})
    changed = built(template=replace(TEMPLATE, pod=pod))
    shown = {kind for kind, manifest in built().items() if digest(changed[kind]) != digest(manifest)}
    elsewhere = {"labels": set(built()), "role": {"RoleBinding"}, "account_annotations": {"ServiceAccount"}}
    assert shown == elsewhere.get(field, {"Deployment"})


def test_what_is_not_said_of_its_pods_is_left_to_kubernetes() -> None:
    made = built()["Deployment"]["spec"]["template"]
    pod, [container] = made["spec"], made["spec"]["containers"]
    assert not {"tolerations", "priorityClassName"} & set(pod)
    assert "annotations" not in made["metadata"]
    assert "imagePullPolicy" not in container
    assert container["resources"] == {}
    assert not any(argument.startswith("--log-level") for argument in container["args"])
    assert list(pod["affinity"]) == ["podAntiAffinity"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "Invalid JSON"),
        ("[]", "an object"),
        ('{"replicas": 2}', "replicas: "),
        ('{"logLevel": "loud"}', "logLevel: "),
        ('{"imagePullPolicy": "Sometimes"}', "imagePullPolicy: "),
        ('{"nodeSelector": {"pool": 1}}', "nodeSelector.pool: "),
        ('{"podAnnotations": {"a": true}}', "podAnnotations.a: "),
        ('{"tolerations": [{"operator": "Exists"}, {"efect": "NoExecute"}]}', "tolerations[1].efect: "),
        ('{"resources": {"request": {}}}', "resources.request: "),
        ('{"resources": {"limits": {"cpus": 1}}}', "resources.limits.cpus: "),
        ('{"resources": {"limits": {"memory": "much"}}}', "resources.limits.memory: "),
        ('{"resources": {"limits": {"memory": true}}}', "resources.limits.memory: "),
    ],
)
def test_what_is_wrong_about_its_pods_is_named(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        FrontendPod.from_json(text)


def test_only_two_or_more_have_a_budget() -> None:
    without = {"ServiceAccount", "RoleBinding", "Service", "Deployment"}
    assert set(built(2)) == {*without, "PodDisruptionBudget"}
    assert set(built(1)) == set(built(0)) == without


def test_it_is_told_whom_it_serves_and_ends_later_than_its_drain() -> None:
    pod = built()["Deployment"]["spec"]["template"]["spec"]
    arguments = pod["containers"][0]["args"]
    assert {"--namespace=plant", "--service=beam", f"--endpoint={get_endpoint('plant', 'beam', TEMPLATE)}"} <= set(
        arguments
    )
    drain = next(int(item.partition("=")[2]) for item in arguments if item.startswith("--drain-seconds="))
    assert pod["terminationGracePeriodSeconds"] > drain + STOP_SECONDS >= drain + REQUEST_SECONDS


@pytest.fixture
def platform(api: Api) -> Iterator[str]:
    """A namespace that takes restricted pods only."""
    name = f"platform-{uuid.uuid4().hex[:8]}"
    marks = {"pod-security.kubernetes.io/enforce": "restricted"}
    assert api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": marks}}).accepted
    yield name
    api.request("DELETE", f"/api/v1/namespaces/{name}")


def test_the_server_has_them_as_they_were_applied(api: Api, platform: str) -> None:
    template = FrontendTemplate(TEMPLATE.image, platform, TEMPLATE.tls_secret, TEMPLATE.domain)
    for pod in (FrontendPod(), POD.model_copy(update={"role": names.FRONTEND})):
        for replicas in (3, 0):
            for manifest in build_frontend("plant", "beam", replicas, replace(template, pod=pod)):
                answer = api.apply(manifest)
                assert answer.accepted, answer.message
                assert contains(answer.body, manifest), manifest["kind"]


def test_quantities_are_written_as_the_server_writes_them(api: Api, platform: str) -> None:
    texts = ["0", "0Gi", "0.5", "1", "1.5", "0.0005", "1500m", "2000m", "1000k", "1024k", "1234567", "1000T"]
    texts += ["1Ki", "0.5Ki", "1023Ki", "1024Ki", "1.5Gi", "1.1Ki", "2048Mi", "3Ti", "1024Ti", "0.0000000001"]
    deployment = built(template=replace(TEMPLATE, namespace=platform))["Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    pod["containers"] = [
        {**container, "name": f"c-{number}", "resources": {"requests": {"memory": text}}}
        for number, text in enumerate(texts)
    ]
    answer = api.apply(deployment)
    assert answer.accepted, answer.message
    found = answer.body["spec"]["template"]["spec"]["containers"]
    assert [item["resources"]["requests"]["memory"] for item in found] == [
        canonicalize_quantity(text) for text in texts
    ]


def test_its_pods_are_restricted(api: Api, platform: str) -> None:
    template = FrontendTemplate(TEMPLATE.image, platform, TEMPLATE.tls_secret, TEMPLATE.domain)
    made = built(template=template)
    assert api.apply(made["ServiceAccount"]).accepted
    pod = made["Deployment"]["spec"]["template"]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "namespace": platform},
        "spec": pod["spec"],
    }
    answer = api.create(body, dry_run=True)
    assert answer.accepted, answer.message
    loose = copy.deepcopy(body)
    loose["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    assert not api.create(loose, dry_run=True).accepted, "the namespace does refuse others"


# What is there, compared with what should be

json_values = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=12,
)


@given(json_values)
def test_everything_contains_itself(value: Json) -> None:
    assert contains(value, value)


@given(st.dictionaries(st.text(max_size=3), json_values, max_size=4), st.text(min_size=4, max_size=6), json_values)
def test_more_does_no_harm_and_less_is_noticed(value: Json, name: str, other: Json) -> None:
    assert contains({**value, name: other}, value)
    assert not contains(value, {**value, name: other})


@pytest.mark.parametrize(
    ("live", "wanted", "same"),
    [
        ({"a": [{"name": "x", "more": 1}, {"name": "y"}]}, {"a": [{"name": "y"}, {"name": "x"}]}, True),
        ({"a": [{"name": "x"}]}, {"a": [{"name": "x", "image": "i"}]}, False),
        ({"args": ["a", "b"]}, {"args": ["b", "a"]}, False),
        ({"args": ["a", "b"]}, {"args": ["a"]}, False),
        ({"a": None}, {"a": {}}, False),
    ],
)
def test_objects_in_lists_have_no_order_and_values_have(live: Json, wanted: Json, same: bool) -> None:
    assert contains(live, wanted) is same
