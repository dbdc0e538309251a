# SPDX-License-Identifier: Apache-2.0
"""A real kube-apiserver refuses bad objects, and its message names the field."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kube_api import Api
from simyard.api import names
from simyard.api.base import Json
from simyard.api.simulation_service import RESERVED_ACTIONS


def manifest(kind: str, spec: Json, name: str = "x") -> Json:
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def site(**spec: Any) -> Json:
    return manifest("CloudSite", {"provider": {"emulated": {}}, **spec}, "refusals")


def provided(kind: str, name: str = "", **settings: Any) -> Json:
    return manifest("CloudSite", {"provider": {kind: settings}}, f"refusals-{kind.lower()}{name}")


def pool(**spec: Any) -> Json:
    return manifest("WorkerPool", {"serviceRef": {"name": "beam"}, **spec})


def worker(**spec: Any) -> Json:
    return manifest("Worker", {"serviceRef": {"name": "beam"}, "site": "local", **spec})


def mixin(**spec: Any) -> Json:
    return manifest("OcciMixin", {"scheme": "http://example.org/tags#", "term": "t", "location": "/t/", **spec})


def action(**spec: Any) -> Json:
    return manifest("ServiceAction", {"target": {"kind": "Worker", "name": "w"}, "action": "solve", **spec})


def service(**spec: Any) -> Json:
    return manifest("SimulationService", {"interface": {}, "connector": {"python": {"class": "m:C"}}, **spec})


def study(**spec: Any) -> Json:
    design = {"grid": {"axes": [{"name": "a", "values": [1]}]}}
    return manifest("Study", {"target": {"kind": "Worker", "name": "w"}, "action": "solve", "design": design, **spec})


def optimisation(**fields: Any) -> Json:
    axes = [{"name": "a", "start": 0, "stop": 1}]
    search = {"axes": axes, "objectives": [{"result": "y"}], "algorithm": "DE", "evaluations": 100, **fields}
    design = {"optimise": {name: value for name, value in search.items() if value is not None}}
    return manifest("Study", {"target": {"kind": "Worker", "name": "w"}, "action": "solve", "design": design})


def attribute(**declaration: Any) -> Json:
    return service(interface={"attributes": [{"name": "load", "type": "number", **declaration}]})


def actions(*declared: str) -> Json:
    return {"actions": [{"name": name} for name in declared]}


def commands(interface: Json, **connector: Any) -> Json:
    return service(interface=interface, connector={"commands": connector})


RUN = {"action": "solve", "command": ["true"]}
EMULATED: Json = {"emulated": {}}
POD: Json = {"pod": {}}
ONE: Json = {
    "endpoint": "https://blue.example.org/RPC2",
    "credentialsSecretRef": {"name": "one"},
    "template": "worker",
}
TWO = [{"result": "y"}, {"result": "z"}]
SEARCH = "spec.design.optimise"

REFUSED: dict[str, tuple[Json, str, str]] = {
    "no provider": (site(provider={}), "spec.provider", "exactly one provider must be set"),
    "two providers": (site(provider={**EMULATED, **POD}), "spec.provider", "exactly one provider must be set"),
    "unknown provider": (site(provider={"ec2": {}}), "spec.provider", "exactly one provider must be set"),
    "no such kind of guest": (
        site(provider={"emulated": {"guests": "vm"}}),
        "spec.provider.emulated.guests",
        '"shared"',
    ),
    "a label of ours on pods": (
        site(provider={"pod": {"labels": {"simyard.dev/worker": "x"}}}),
        "spec.provider.pod.labels",
        "which belongs to the platform",
    ),
    "selected without names": (
        site(allowedNamespaces={"from": "Selected"}),
        "spec.allowedNamespaces.names",
        "Selected",
    ),
    "names without selected": (site(allowedNamespaces={"names": ["a"]}), "spec.allowedNamespaces.names", "Selected"),
    "a name twice": (
        site(allowedNamespaces={"from": "Selected", "names": ["a", "a"]}),
        "spec.allowedNamespaces.names[1]",
        "Duplicate value",
    ),
    "not a currency": (site(cost={"currency": "Euro"}), "spec.cost.currency", "should match"),
    "a float": (site(cost={"coreHourMillis": 0.5}), "spec.cost.coreHourMillis", "must be of type integer"),
    "no workers at once": (site(limits={"maxInFlight": 0}), "spec.limits.maxInFlight", "greater than or equal to 1"),
    "name of a site too long": (
        manifest("CloudSite", {"provider": EMULATED}, "a" * 64),
        "metadata.name",
        "may not be more than 63",
    ),
    "no service": (manifest("WorkerPool", {}), "spec.serviceRef", "Required value"),
    "replicas below zero": (pool(replicas=-1), "spec.replicas", "greater than or equal to 0"),
    "replicas as text": (pool(replicas="3"), "spec.replicas", "must be of type integer"),
    "unknown strategy": (pool(placement={"strategy": "Random"}), "spec.placement.strategy", '"Ordered", "Spread"'),
    "quorum of nothing": (pool(start={"quorumPercent": 0}), "spec.start.quorumPercent", "greater than or equal to 1"),
    "name of a pool too long": (
        manifest("WorkerPool", {"serviceRef": {"name": "beam"}}, "a" * 49),
        "metadata.name",
        "may not be more than 48",
    ),
    "name of a pool with a dot": (
        manifest("WorkerPool", {"serviceRef": {"name": "beam"}}, "a.b"),
        "metadata.name",
        "should match",
    ),
    "unknown power state": (worker(powerState="Off"), "spec.powerState", '"Running", "Stopped", "Suspended"'),
    "worker without a site": (manifest("Worker", {"serviceRef": {"name": "beam"}}), "spec.site", "Required value"),
    "target of another kind": (action(target={"kind": "Pod", "name": "w"}), "spec.target.kind", '"WorkerPool"'),
    "name of an action in capitals": (action(action="Solve"), "spec.action", "should match"),
    "parameters as a list": (action(parameters=[1]), "spec.parameters", "must be of type object"),
    "too patient": (action(timeoutSeconds=2_592_001), "spec.timeoutSeconds", "less than or equal to 2592000"),
    "unknown type": (attribute(type="float"), "spec.interface.attributes[0].type", 'supported values: "string"'),
    "enum on a number": (attribute(enum=["a"]), "spec.interface.attributes[0].enum", "only for the type string"),
    "pattern on a number": (attribute(pattern="a"), "spec.interface.attributes[0].pattern", "only for the type string"),
    "bounds on a string": (attribute(type="string", minimum=1), "spec.interface.attributes[0]", "minimum and maximum"),
    "length of a number": (attribute(maxLength=1), "spec.interface.attributes[0].maxLength", "types string and array"),
    "bound not a number": (attribute(maximum="ten"), "spec.interface.attributes[0].maximum", "should match"),
    "bound a float": (attribute(maximum=1.5), "spec.interface.attributes[0].maximum", "must be of type integer,string"),
    "description too long": (
        attribute(description="x" * 1025),
        "spec.interface.attributes[0].description",
        "may not be more than 1024",
    ),
    "an attribute twice": (
        service(interface={"attributes": [{"name": "a", "type": "string"}, {"name": "a", "type": "number"}]}),
        "spec.interface.attributes[1]",
        "Duplicate value",
    ),
    "colliding actions": (
        service(interface=actions("solve", "solve")),
        "spec.interface.actions[1]",
        "Duplicate value",
    ),
    **{
        f"built-in action {name}": (
            service(interface=actions(name)),
            "spec.interface.actions[0].name",
            "is the name of a built-in action: choose a name other than",
        )
        for name in RESERVED_ACTIONS
    },
    "python and commands": (
        service(connector={"python": {"class": "m:C"}, "commands": {}}),
        "spec.connector",
        "exactly one of python and commands",
    ),
    "neither python nor commands": (service(connector={}), "spec.connector", "exactly one of python and commands"),
    "class without a module": (
        service(connector={"python": {"class": "C"}}),
        "spec.connector.python.class",
        "should match",
    ),
    "file outside": (
        service(connector={"python": {"class": "m:C"}, "files": [{"path": "../x", "content": ""}]}),
        "spec.connector.files[0].path",
        "should match",
    ),
    "command of an undeclared action": (
        commands(actions("solve"), actions=[RUN, {"action": "mesh", "command": ["true"]}]),
        "spec.connector.commands.actions",
        "names an action that spec.interface.actions does not declare",
    ),
    "cancels an undeclared action": (
        commands(actions("solve"), actions=[{"action": "solve", "cancels": "mesh"}]),
        "spec.connector.commands.actions",
        "names an action that spec.interface.actions does not declare",
    ),
    "an action without a command": (
        commands(actions("solve", "mesh"), actions=[RUN]),
        "spec.connector.commands.actions",
        "lacks an action that spec.interface.actions declares",
    ),
    "command of an undeclared attribute": (
        commands({}, attributes=[{"attribute": "load", "file": "load", "pattern": "(.*)"}]),
        "spec.connector.commands.attributes",
        "names an attribute that spec.interface.attributes does not declare",
    ),
    "an action that runs and cancels": (
        commands(actions("solve"), actions=[{**RUN, "cancels": "solve"}]),
        "spec.connector.commands.actions[0]",
        "exactly one of command and cancels",
    ),
    "an attribute from nowhere": (
        commands(
            {"attributes": [{"name": "load", "type": "number"}]},
            attributes=[{"attribute": "load", "pattern": "(.*)"}],
        ),
        "spec.connector.commands.attributes[0]",
        "exactly one of command and file",
    ),
    "memory below zero": (service(resources={"memory": -1}), "spec.resources.memory", "greater than or equal to 0"),
    "memory in words": (service(resources={"memory": "much"}), "spec.resources.memory", "should match"),
    "fixed and automatic frontends": (
        service(frontend={"replicas": 2, "autoscaling": {}}),
        "spec.frontend",
        "exactly one of replicas and autoscaling must be set",
    ),
    "frontends without a number": (
        service(frontend={}),
        "spec.frontend",
        "exactly one of replicas and autoscaling must be set",
    ),
    "a mixin whose term begins a line": (mixin(term='t"\nX-OCCI-Location: x'), "spec.term", "should match"),
    "a mixin whose scheme ends its quotes": (mixin(scheme='http://x" y#'), "spec.scheme", "should match"),
    "an attribute whose name is two": (mixin(attributes=[{"name": "a b"}]), "spec.attributes[0].name", "should match"),
    "a member that is two lines": (mixin(members=["/compute/a\n/b"]), "spec.members[0]", "should match"),
    "a link to two lines": (
        manifest("OcciLink", {"kind": "http://x#y", "source": "/compute/a", "target": "/a\n/b"}),
        "spec.target",
        "should match",
    ),
    "more frontends than at most": (
        service(frontend={"autoscaling": {"minReplicas": 5, "maxReplicas": 4}}),
        "spec.frontend.autoscaling.minReplicas",
        "must not be greater than maxReplicas",
    ),
    "search without a budget": (optimisation(evaluations=None), f"{SEARCH}.evaluations", "needs a budget"),
    "two objectives for DE": (optimisation(objectives=TWO), f"{SEARCH}.algorithm", "all other algorithms are for one"),
    "one objective for NSGA-II": (
        optimisation(algorithm="NSGAII"),
        f"{SEARCH}.algorithm",
        "are for several objectives",
    ),
    "one parameter for CMA-ES": (optimisation(algorithm="CMAES"), f"{SEARCH}.algorithm", "at least two parameters"),
    "end at a value of two objectives": (
        optimisation(objectives=TWO, algorithm="NSGAII", goodEnough=1),
        SEARCH,
        "need a single objective: remove them",
    ),
    "bound of two sides": (
        optimisation(constraints=[{"result": "y", "atMost": 1, "atLeast": 0}]),
        f"{SEARCH}.constraints[0]",
        "needs exactly one of `atMost` and `atLeast`",
    ),
    "cost below 0": (study(maxCost=-5), "spec.maxCost", "must not be negative"),
    "decimal cost below 0": (study(maxCost="-0.5"), "spec.maxCost", "must not be negative"),
    "cost that is no float": (study(maxCost="1e400"), "spec.maxCost", "should match"),
}

CHANGES: dict[str, tuple[Json, Json, str, str]] = {
    "kind of provider": (
        site(),
        {"provider": {"emulated": None, "pod": {}}},
        "spec.provider",
        "the kind of provider is immutable",
    ),
    "namespace of a site's pods": (
        provided("pod", namespace="blue"),
        {"provider": {"pod": {"namespace": "green"}}},
        "spec.provider.pod.namespace",
        "create a new CloudSite",
    ),
    "namespace of a site's pods added": (
        provided("pod", "any"),
        {"provider": {"pod": {"namespace": "green"}}},
        "spec.provider.pod.namespace",
        "create a new CloudSite",
    ),
    "cluster of a site's machines": (
        provided("kubevirt", kubeconfigSecretRef={"name": "blue"}),
        {"provider": {"kubevirt": {"kubeconfigSecretRef": {"name": "green"}}}},
        "spec.provider.kubevirt.kubeconfigSecretRef",
        "create a new CloudSite",
    ),
    "endpoint of a cloud": (
        provided("openNebula", **ONE),
        {"provider": {"openNebula": {"endpoint": "https://green.example.org/RPC2"}}},
        "spec.provider.openNebula.endpoint",
        "create a new CloudSite",
    ),
    "service of a pool": (pool(), {"serviceRef": {"name": "other"}}, "spec.serviceRef", "is immutable"),
    "service of a worker": (worker(), {"serviceRef": {"name": "other"}}, "spec.serviceRef", "is immutable"),
    "site of a worker": (worker(), {"site": "other"}, "spec.site", "is immutable"),
    "size of a worker": (worker(), {"resources": {"cpu": 4}}, "spec.resources", "is immutable"),
    "user data of a worker": (worker(userData="a"), {"userData": None}, "spec.userData", "is immutable"),
    "keys of a worker": (worker(sshPublicKeys=["a"]), {"sshPublicKeys": ["b"]}, "spec.sshPublicKeys", "is immutable"),
    "restarts taken back": (worker(restarts=2), {"restarts": 1}, "spec.restarts", "must not decrease"),
    "term of a mixin": (mixin(), {"term": "other"}, "spec.term", "is immutable"),
    "target": (action(), {"target": {"name": "other"}}, "spec.target", "is immutable"),
    "action": (action(), {"action": "other"}, "spec.action", "is immutable"),
    "parameter": (action(parameters={"a": 1}), {"parameters": {"a": 2}}, "spec.parameters", "is immutable"),
    "parameter deep inside": (
        action(parameters={"a": {"b": [1, {"c": 0.5}]}}),
        {"parameters": {"a": {"b": [1, {"c": 0.25}]}}},
        "spec.parameters",
        "is immutable",
    ),
    "one parameter more": (action(), {"parameters": {"a": 1}}, "spec.parameters", "is immutable"),
    "one parameter less": (action(parameters={"a": 1}), {"parameters": {"a": None}}, "spec.parameters", "is immutable"),
    "timeout": (action(timeoutSeconds=1), {"timeoutSeconds": 2}, "spec.timeoutSeconds", "is immutable"),
    "timeout added": (action(), {"timeoutSeconds": 2}, "spec.timeoutSeconds", "is immutable"),
    "timeout removed": (action(timeoutSeconds=1), {"timeoutSeconds": None}, "spec.timeoutSeconds", "is immutable"),
    "cancellation taken back": (action(cancel=True), {"cancel": False}, "spec.cancel", "cannot be undone"),
    "search": (optimisation(), {"design": {"optimise": {"seed": 9}}}, "spec.design", "is immutable"),
}

PERMITTED: dict[str, tuple[Json, Json]] = {
    "settings of a provider": (site(), {"provider": {"emulated": {"jitterPercent": 5}}}),
    "image of the adapter in a site's pods": (
        provided("pod", "adapted", namespace="blue"),
        {"provider": {"pod": {"adapterImage": "simyard"}}},
    ),
    "credentials of a cloud": (
        provided("openNebula", "renewed", **ONE),
        {"provider": {"openNebula": {"credentialsSecretRef": {"name": "newer"}}}},
    ),
    "replicas": (pool(), {"replicas": 7}),
    "power state": (worker(), {"powerState": "Stopped", "drain": True}),
    "restarts": (worker(), {"restarts": 1}),
    "one restart more": (worker(restarts=1), {"restarts": 2}),
    "texts of a worker": (worker(title="a"), {"title": "b", "summary": "c", "hostname": "d"}),
    "members of a mixin": (mixin(), {"members": ["/compute/a"]}),
    "cancellation": (action(parameters={"a": {"b": 0.5}}), {"cancel": True}),
    "time to keep": (action(), {"ttlSecondsAfterFinished": 1}),
    "interface": (service(), {"interface": actions("solve")}),
}


def named(cases: dict[str, Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases.values(), ids=cases)


def in_namespace(example: Json, namespace: str) -> Json:
    result = copy.deepcopy(example)
    if result["kind"] != "CloudSite":
        result["metadata"]["namespace"] = namespace
    return result


@named(REFUSED)
def test_refuses_to_create(api: Api, case: tuple[Json, str, str]) -> None:
    example, field, message = case
    answer = api.create(in_namespace(example, "default"), dry_run=True)
    assert answer.status == 422, answer
    causes = {(cause["field"], cause["message"]) for cause in answer.body["details"]["causes"]}
    assert any(where == field and message in why for where, why in causes), answer.message


@named(CHANGES)
def test_refuses_to_change(api: Api, namespace: str, case: tuple[Json, Json, str, str]) -> None:
    example, change, field, message = case
    stored = in_namespace(example, namespace)
    assert api.apply(stored).accepted
    answer = api.patch(stored, {"spec": change})
    assert answer.status == 422, answer
    assert f"{field}: " in answer.message
    assert message in answer.message


@named(PERMITTED)
def test_permits_to_change(api: Api, namespace: str, case: tuple[Json, Json]) -> None:
    example, change = case
    stored = in_namespace(example, namespace)
    assert api.apply(stored).accepted
    answer = api.patch(stored, {"spec": change})
    assert answer.accepted, answer.message
