# SPDX-License-Identifier: Apache-2.0
"""The admission policies, with users by impersonation: who may call an action, and where a pool may run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from kube_api import Api, build_path, wait_until
from simyard.api import names
from simyard.api.base import Json
from simyard.manifests import rbac


def invocation(namespace: str, action: str, kind: str = "Worker", target: str = "w", name: str = "") -> Json:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ServiceAction",
        "metadata": {"name": name or f"a-{uuid.uuid4().hex[:8]}", "namespace": namespace},
        "spec": {"target": {"kind": kind, "name": target}, "action": action},
    }


@pytest.fixture
def caller(api: Api, namespace: str) -> str:
    """A user who may call ``solve`` on the worker ``w``, and write ServiceActions, and nothing else."""
    user = f"caller-{uuid.uuid4().hex[:8]}"
    role = rbac.build_action_role(namespace, names.WORKERS, "solve", only=["w"])
    api.install([role])
    api.bind(user, namespace, "Role", role["metadata"]["name"])
    # Roles and policies come to the API server by watches of its own.
    wait_until(lambda: api.create(invocation(namespace, "solve"), user=user, dry_run=True).accepted)
    wait_until(lambda: api.create(invocation(namespace, "other"), user=user, dry_run=True).status == 403)
    return user


@pytest.mark.parametrize(
    ("kind", "target", "action"),
    [
        ("Worker", "w", "other"),
        ("Worker", "w", "solve2"),
        ("Worker", "v", "solve"),
        ("WorkerPool", "w", "solve"),
        ("SimulationService", "w", "solve"),
    ],
)
def test_the_right_to_one_action_is_not_the_right_to_another(
    api: Api, namespace: str, caller: str, kind: str, target: str, action: str
) -> None:
    answer = api.create(invocation(namespace, action, kind, target), user=caller)
    assert answer.status == 403
    assert f"spec.action: {caller} may not create " in answer.message
    assert f"/actions/{action} of subresources.simyard.dev on {target}" in answer.message


def test_cancelling_takes_the_right_to_the_action(api: Api, namespace: str, caller: str) -> None:
    own, foreign = invocation(namespace, "solve"), invocation(namespace, "other")
    assert api.create(own, user=caller).accepted
    assert api.create(foreign).accepted
    assert api.patch(own, {"spec": {"cancel": True}}, user=caller).accepted
    answer = api.patch(foreign, {"spec": {"cancel": True}}, user=caller)
    assert answer.status == 403
    assert "may not update workers/actions/other" in answer.message


def test_what_does_not_change_the_invocation_is_not_asked_for(api: Api, namespace: str, caller: str) -> None:
    foreign = invocation(namespace, "other")
    assert api.create(foreign).accepted
    assert api.patch(foreign, {"metadata": {"labels": {"seen": "true"}}}, user=caller).accepted


def test_the_apiserver_has_asked_already(api: Api, namespace: str, caller: str) -> None:
    account = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{names.APISERVER}"
    assert api.create(invocation(namespace, "other"), user=account).accepted


@dataclass(frozen=True)
class Sites:
    """Names of CloudSites of this test's own."""

    regional: str
    external: str
    closed: str


@pytest.fixture
def sites(api: Api, namespace: str) -> Iterator[Sites]:
    suffix = uuid.uuid4().hex[:8]
    found = Sites(f"regional-{suffix}", f"external-{suffix}", f"closed-{suffix}")
    closed = {"from": "Selected", "names": ["another-namespace"]}
    manifests: list[Json] = [
        {
            "apiVersion": names.API_VERSION,
            "kind": "CloudSite",
            "metadata": {"name": name},
            "spec": {"provider": {"emulated": {}}, **spec},
        }
        for name, spec in (
            (found.regional, {}),
            (found.external, {"trust": "External"}),
            (found.closed, {"allowedNamespaces": closed}),
        )
    ]
    api.install(manifests)

    def refused(site: str) -> bool:
        return not api.create(pool(namespace, [site]), dry_run=True).accepted

    wait_until(lambda: refused(found.external) and refused(found.closed))
    yield found
    for manifest in manifests:
        api.request("DELETE", build_path(manifest))


def pool(namespace: str, sites: list[str], consent: tuple[str, ...] = (), name: str = "p") -> Json:
    placement: dict[str, Any] = {"sites": sites, "consent": list(consent)}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "WorkerPool",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"serviceRef": {"name": "s"}, "placement": placement},
    }


def test_an_external_site_needs_consent_by_name(api: Api, namespace: str, sites: Sites) -> None:
    for consent in ((), (sites.regional,)):
        answer = api.create(pool(namespace, [sites.regional, sites.external], consent))
        assert answer.status == 422
        assert f"spec.placement.consent: the site {sites.external} is External" in answer.message
    assert api.create(pool(namespace, [sites.regional, sites.external], (sites.external,))).accepted


def test_consent_cannot_be_withdrawn_while_the_site_is_named(api: Api, namespace: str, sites: Sites) -> None:
    stored = pool(namespace, [sites.external], (sites.external,))
    assert api.create(stored).accepted
    refused = api.patch(stored, {"spec": {"placement": {"consent": []}}})
    assert f"spec.placement.consent: the site {sites.external} is External" in refused.message
    assert api.patch(stored, {"spec": {"placement": {"sites": [], "consent": []}}}).accepted
    refused = api.patch(stored, {"spec": {"placement": {"sites": [sites.external]}}})
    assert f"spec.placement.consent: the site {sites.external} is External" in refused.message


def test_a_site_is_closed_to_namespaces_that_it_does_not_select(api: Api, namespace: str, sites: Sites) -> None:
    answer = api.create(pool(namespace, [sites.closed]))
    assert answer.status == 422
    assert f"spec.placement.sites: the site {sites.closed} is not open to the namespace {namespace}" in answer.message


def test_sites_that_do_not_exist_and_no_sites_at_all_are_permitted(api: Api, namespace: str, sites: Sites) -> None:
    assert api.create(pool(namespace, [f"no-{sites.regional}"]), dry_run=True).accepted
    assert api.create(pool(namespace, []), dry_run=True).accepted


def test_a_pool_can_be_scaled_and_let_go_after_its_site_became_external(api: Api, namespace: str, sites: Sites) -> None:
    stored = pool(namespace, [sites.regional])
    stored["metadata"]["finalizers"] = [names.FINALIZER]
    assert api.create(stored).accepted
    site = {"apiVersion": names.API_VERSION, "kind": "CloudSite", "metadata": {"name": sites.regional}}
    assert api.patch(site, {"spec": {"trust": "External"}}).accepted
    wait_until(lambda: not api.create(pool(namespace, [sites.regional], name="q"), dry_run=True).accepted)
    assert api.patch(stored, {"spec": {"replicas": 0}}).accepted
    assert api.patch(stored, {"metadata": {"finalizers": None}}).accepted


def lone_worker(namespace: str, site: str) -> Json:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Worker",
        "metadata": {"name": f"w-{uuid.uuid4().hex[:8]}", "namespace": namespace},
        "spec": {"serviceRef": {"name": "beam"}, "site": site},
    }


def test_a_worker_passes_by_no_rule_of_its_site(api: Api, namespace: str, sites: Sites) -> None:
    def refused(site: str, why: str) -> None:
        answer = api.create(lone_worker(namespace, site), dry_run=True)
        assert answer.status == 422
        assert f"spec.site: the site {site} {why}" in answer.message

    def change(**spec: Any) -> None:
        manifest = {"apiVersion": names.API_VERSION, "kind": "CloudSite", "metadata": {"name": sites.regional}}
        assert api.patch(manifest, {"spec": spec}).accepted

    wait_until(lambda: not api.create(lone_worker(namespace, sites.closed), dry_run=True).accepted)
    refused(sites.closed, f"is not open to the namespace {namespace}")
    refused(sites.external, "is External: create a WorkerPool, and name the site in its spec.placement.consent")
    stored = lone_worker(namespace, sites.regional)
    assert api.create(stored).accepted
    change(cordoned=True, limits={"maxWorkers": 0})
    wait_until(lambda: not api.create(lone_worker(namespace, sites.regional), dry_run=True).accepted)
    refused(sites.regional, "is cordoned: choose another site")
    change(cordoned=False)
    wait_until(lambda: "is cordoned" not in api.create(lone_worker(namespace, sites.regional), dry_run=True).message)
    refused(sites.regional, "has its maximum of 0 workers: choose another site")
    assert api.patch(stored, {"spec": {"drain": True}}).accepted, "what exists can still be changed"


def test_the_operator_makes_the_workers_that_it_has_placed(api: Api, namespace: str, sites: Sites) -> None:
    account = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{names.OPERATOR}"
    wait_until(lambda: not api.create(lone_worker(namespace, sites.external), dry_run=True).accepted)
    assert api.create(lone_worker(namespace, sites.external), user=account, dry_run=True).accepted


def test_users_cannot_move_a_worker_to_another_pool(api: Api, namespace: str) -> None:
    user = f"editor-{uuid.uuid4().hex[:8]}"
    api.bind(user, namespace, "ClusterRole", "simyard-edit")
    worker: Json = {
        "apiVersion": names.API_VERSION,
        "kind": "Worker",
        "metadata": {"name": f"w-{uuid.uuid4().hex[:8]}", "namespace": namespace},
        "spec": {"serviceRef": {"name": "beam"}, "site": "local"},
    }
    stored = api.create(worker).body
    path = build_path(worker) + "?dryRun=All"
    owner = {"apiVersion": names.API_VERSION, "kind": "WorkerPool", "name": "p", "uid": "another", "controller": True}

    def put(metadata: Json, spec: Json) -> Any:
        return api.request(
            "PUT", path, {**stored, "metadata": {**stored["metadata"], **metadata}, "spec": spec}, user=user
        )

    wait_until(lambda: put({"labels": {"a": "b"}}, stored["spec"]).accepted)
    wait_until(lambda: put({"ownerReferences": [owner]}, stored["spec"]).status == 403)
    assert "metadata.ownerReferences: " in put({"ownerReferences": [owner]}, stored["spec"]).message


def test_users_cannot_say_of_which_licence_a_worker_holds_a_seat(api: Api, namespace: str) -> None:
    user = f"editor-{uuid.uuid4().hex[:8]}"
    api.bind(user, namespace, "ClusterRole", "simyard-edit")
    stored = api.create(lone_worker(namespace, "local")).body

    def annotate(name: str, text: str) -> Any:
        return api.patch(stored, {"metadata": {"annotations": {name: text}}}, user=user)

    wait_until(lambda: annotate("example.org/note", "n").accepted)
    wait_until(lambda: annotate(names.ANNOTATION_LICENCE, uuid.uuid4().hex).status == 403)
    assert names.ANNOTATION_LICENCE in annotate(names.ANNOTATION_LICENCE, "shared").message


def test_a_study_takes_the_right_to_its_action(api: Api, namespace: str, caller: str) -> None:
    def study(action: str) -> Json:
        made = {**invocation(namespace, action), "kind": "Study"}
        made["spec"]["design"] = {"grid": {"axes": [{"name": "x", "values": [1]}]}}
        return made

    own, foreign = study("solve"), study("other")
    wait_until(lambda: api.create(study("other"), user=caller, dry_run=True).status == 403)
    assert "may not create workers/actions/other" in api.create(foreign, user=caller).message
    assert api.create(own, user=caller).accepted
    assert api.create(foreign).accepted
    assert api.patch(own, {"spec": {"suspend": True}}, user=caller).accepted
    answer = api.patch(foreign, {"spec": {"suspend": True}}, user=caller)
    assert answer.status == 403
    assert "may not update workers/actions/other" in answer.message


def test_a_study_that_asks_for_workers_takes_the_right_to_scale_the_pool(api: Api, namespace: str, caller: str) -> None:
    role = rbac.build_action_role(namespace, names.WORKER_POOLS, "solve", only=["pool"])
    role["metadata"]["name"] = "call-on-pool"
    api.install([role])
    api.bind(caller, namespace, "Role", "call-on-pool")
    study = {**invocation(namespace, "solve"), "kind": "Study"}
    study["spec"]["design"] = {"grid": {"axes": [{"name": "x", "values": [1]}]}}
    study["spec"] |= {"target": {"kind": "WorkerPool", "name": "pool"}, "workers": {"max": 5}}
    wait_until(lambda: "spec.workers: " in api.create(study, user=caller, dry_run=True).message)
    assert "may not update workerpools/scale" in api.create(study, user=caller).message
    assert api.create(study).accepted
