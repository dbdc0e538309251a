# SPDX-License-Identifier: Apache-2.0
"""Roles grant exactly the documented rights, checked on a real kube-apiserver like ``kubectl auth can-i``."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from kube_api import Api, build_path, wait_until
from simyard.api import names
from simyard.api.base import Json
from simyard.manifests import frontend, frontend_account, rbac
from simyard_sites.kubernetes.resource import Resource

READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete", "deletecollection")
KINDS = (names.SIMULATION_SERVICES, names.WORKER_POOLS, names.WORKERS, names.SERVICE_ACTIONS)


def called(resource: Resource) -> Resource:
    """The same resource in the aggregated group."""
    return Resource(names.SUBRESOURCES_GROUP, names.VERSION, resource.plural, resource.kind)


def core(plural: str, group: str = "") -> Resource:
    return Resource(group, "v1", plural, "")


May = Callable[..., bool]


@pytest.fixture
def bind(api: Api, namespace: str) -> Callable[[str], May]:
    """Gives a new user a ClusterRole in the namespace; the answer asks what that user may do there."""

    def bind_role(role: str) -> May:
        user = f"{role}-{uuid.uuid4().hex[:8]}"
        api.bind(user, namespace, "ClusterRole", role)

        def may(verb: str, resource: Resource, subresource: str = "", in_namespace: str = namespace) -> bool:
            return api.may(user, verb, resource, subresource, namespace=in_namespace)

        wait_until(lambda: may("get", names.WORKER_POOLS))
        return may

    return bind_role


@pytest.mark.parametrize("role", ["simyard-view", "simyard-edit", "simyard-vendor", "view", "edit", "admin"])
def test_every_role_reads_everything_in_its_namespace(bind: Callable[[str], May], role: str) -> None:
    may = bind(role)
    assert all(may(verb, kind) for kind in KINDS for verb in READ)
    assert may("get", called(names.WORKERS), "attributes")
    assert may("get", called(names.WORKERS), "log")
    assert not may("get", names.WORKER_POOLS, in_namespace="kube-public")


@pytest.mark.parametrize("role", ["simyard-view", "simyard-edit", "simyard-vendor", "view", "edit", "admin"])
def test_everybody_reads_the_usage_and_nobody_writes_it(bind: Callable[[str], May], role: str) -> None:
    may = bind(role)
    wait_until(lambda: may("list", names.USAGES))
    assert all(may(verb, names.USAGES) for verb in READ)
    assert not any(may(verb, names.USAGES) for verb in WRITE)
    assert not any(may(verb, names.USAGES, "status") for verb in ("update", "patch"))


@pytest.mark.parametrize("role", ["simyard-view", "simyard-edit", "view", "edit"])
def test_what_occi_clients_define_is_read_by_all_and_written_by_editors(bind: Callable[[str], May], role: str) -> None:
    may, kinds = bind(role), (names.OCCI_MIXINS, names.OCCI_LINKS)
    wait_until(lambda: may("list", names.OCCI_MIXINS))
    assert all(may(verb, kind) for kind in kinds for verb in READ)
    assert {may(verb, kind) for kind in kinds for verb in WRITE} == {role.endswith("edit")}


@pytest.mark.parametrize("role", ["simyard-view", "view"])
def test_view_changes_and_calls_nothing(bind: Callable[[str], May], role: str) -> None:
    may = bind(role)
    assert not any(may(verb, kind) for kind in KINDS for verb in WRITE)
    assert not any(may(verb, called(kind), "actions/solve") for kind in KINDS for verb in ("create", "update"))


@pytest.mark.parametrize("role", ["simyard-edit", "edit"])
def test_edit_runs_pools_and_calls_actions_but_publishes_nothing(bind: Callable[[str], May], role: str) -> None:
    may = bind(role)
    assert all(may(verb, kind) for kind in (names.WORKER_POOLS, names.SERVICE_ACTIONS) for verb in WRITE)
    assert may("patch", names.WORKER_POOLS, "scale")
    assert may("delete", names.WORKERS)
    assert not may("create", names.WORKERS)
    assert not any(may(verb, names.SIMULATION_SERVICES) for verb in WRITE)
    assert not may("update", names.WORKER_POOLS, "status")
    for kind in (names.WORKERS, names.WORKER_POOLS, names.SIMULATION_SERVICES):
        assert all(
            may(verb, called(kind), sub) for verb in ("create", "update") for sub in ("actions", "actions/solve")
        )


@pytest.mark.parametrize("role", ["simyard-vendor", "admin"])
def test_vendors_publish_services(bind: Callable[[str], May], role: str) -> None:
    assert all(bind(role)(verb, names.SIMULATION_SERVICES) for verb in WRITE)


def test_vendors_need_not_be_users(bind: Callable[[str], May]) -> None:
    may = bind("simyard-vendor")
    assert not may("create", names.WORKER_POOLS)
    assert not may("create", called(names.WORKERS), "actions/solve")


def test_a_role_can_permit_one_action(api: Api, namespace: str) -> None:
    role = rbac.build_action_role(namespace, names.WORKER_POOLS, "solve", only=["beam"])
    user = f"user-of-{namespace}"
    api.install([role])
    api.bind(user, namespace, "Role", role["metadata"]["name"])

    def may(subresource: str, kind: Resource = names.WORKER_POOLS, name: str = "beam") -> bool:
        return api.may(user, "create", called(kind), subresource, namespace=namespace, name=name)

    wait_until(lambda: may("actions/solve"))
    assert may("actions")
    assert not may("actions/mesh")
    assert not may("actions/solve", name="bridge")
    assert not may("actions/solve", kind=names.WORKERS)


def account_of(name: str) -> str:
    return f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{name}"


def test_the_operator_may_do_its_work_and_read_no_foreign_secret(api: Api) -> None:
    def may(verb: str, resource: Resource, subresource: str = "", namespace: str = "default") -> bool:
        return api.may(account_of(names.OPERATOR), verb, resource, subresource, namespace=namespace)

    wait_until(lambda: may("get", core("secrets"), namespace=names.SYSTEM_NAMESPACE))
    everything = (names.CLOUD_SITES, *KINDS)
    assert all(may(verb, kind) for kind in everything for verb in (*READ, "patch", "update"))
    assert all(may(verb, kind, "status") for kind in everything for verb in ("patch", "update"))
    assert all(may("update", kind, "finalizers") for kind in everything)
    assert all(may(verb, names.WORKERS) for verb in WRITE)
    assert all(may(verb, core("events", group)) for verb in ("create", "patch") for group in ("", "events.k8s.io"))
    assert all(may(verb, names.USAGES) for verb in (*READ, "create"))
    assert may("patch", names.USAGES, "status")
    assert not any(may(verb, names.USAGES) for verb in ("update", "patch", "delete"))
    assert may("update", core("leases", "coordination.k8s.io"), namespace=names.SYSTEM_NAMESPACE)
    assert not may("update", core("leases", "coordination.k8s.io"))
    for kind in frontend.KINDS:
        verbs = (*READ, "create", "patch", "delete")
        assert all(may(verb, kind, namespace=names.SYSTEM_NAMESPACE) for verb in verbs)
        assert not any(may(verb, kind) for verb in verbs)
    assert may("list", core("pods"), namespace=names.SYSTEM_NAMESPACE)
    assert not any(may(verb, core("pods"), namespace=names.SYSTEM_NAMESPACE) for verb in WRITE)
    assert not may("get", core("secrets"))
    assert not may("create", names.WORKER_POOLS)
    assert not may("delete", names.CLOUD_SITES)
    assert not may("create", called(names.WORKERS), "actions/solve")


def test_the_apiserver_may_do_its_work_and_nothing_else(api: Api) -> None:
    def may(verb: str, resource: Resource, subresource: str = "", namespace: str = "default", **where: str) -> bool:
        return api.may(account_of(names.APISERVER), verb, resource, subresource, namespace=namespace, **where)

    wait_until(lambda: may("create", names.SERVICE_ACTIONS))
    targets = (names.WORKERS, names.WORKER_POOLS, names.SIMULATION_SERVICES)
    assert all(may(verb, kind) for kind in targets for verb in READ)
    assert may("get", names.SERVICE_ACTIONS)
    assert may("create", core("subjectaccessreviews", "authorization.k8s.io"))
    own = {"namespace": names.SYSTEM_NAMESPACE}
    assert may("watch", core("secrets"), name=names.APISERVER_BROKER_SECRET, **own)
    assert not may("get", core("secrets"), name="another", **own)
    authentication = {"namespace": "kube-system", "name": "extension-apiserver-authentication"}
    assert may("watch", core("configmaps"), **authentication)
    assert not any(may(verb, kind) for kind in targets for verb in WRITE)
    assert not may("patch", names.SERVICE_ACTIONS)


def test_the_operator_binds_roles_of_frontends_and_no_others(api: Api, namespace: str) -> None:
    """In users' namespaces it writes RoleBindings of one name alone, and those only for the role of frontends."""
    operator = account_of(names.OPERATOR)

    def binding(name: str, role: str, kind: str = "ClusterRole", where: str = namespace) -> Json:
        resource = frontend_account.ROLE_BINDINGS
        kinds = {"apiVersion": resource.api_version, "kind": resource.kind}
        content = frontend_account.build_role_binding_content(kind, role, ["occi-beam"], names.SYSTEM_NAMESPACE)
        return {**kinds, "metadata": {"name": name, "namespace": where}, **content}

    def applied(*what: str) -> bool:
        return api.apply(binding(*what), user=operator).accepted

    ours = frontend_account.BINDING
    wait_until(lambda: applied(ours, names.FRONTEND))
    assert not applied("another", names.FRONTEND)
    assert not api.create(binding("another", names.FRONTEND), user=operator).accepted
    assert api.request("DELETE", build_path(binding(ours, names.FRONTEND)), user=operator).accepted
    for role in ("simyard-edit", "admin", names.APISERVER):
        assert not applied(ours, role), role
    theirs = binding("theirs", "view")
    api.install([theirs])
    assert not api.request("GET", build_path(theirs), user=operator).accepted
    assert not api.request("DELETE", build_path(theirs), user=operator).accepted
    assert not applied("occi-beam", "admin", "ClusterRole", names.SYSTEM_NAMESPACE)


def test_frontends_may_do_their_work_in_their_namespace_and_nothing_elsewhere(api: Api, namespace: str) -> None:
    account = f"occi-{namespace}"
    api.install(frontend_account.build_bound_account(account, namespace, names.SYSTEM_NAMESPACE))

    def may(verb: str, resource: Resource, subresource: str = "", **where: str) -> bool:
        return api.may(account_of(account), verb, resource, subresource, **{"namespace": namespace, **where})

    wait_until(lambda: may("create", names.SERVICE_ACTIONS))
    occi = (names.OCCI_MIXINS, names.OCCI_LINKS)
    served = (names.CLOUD_SITES, names.SIMULATION_SERVICES, names.WORKER_POOLS, names.WORKERS, *occi)
    assert all(may(verb, kind) for kind in served for verb in READ)
    assert all(may(verb, kind) for kind in occi for verb in ("create", "update", "patch", "delete"))
    assert all(may(verb, names.WORKERS) for verb in ("create", "patch", "delete"))
    assert all(may(verb, names.WORKER_POOLS) for verb in ("create", "patch", "delete"))
    assert may("create", core("tokenreviews", "authentication.k8s.io"))
    assert may("create", core("subjectaccessreviews", "authorization.k8s.io"))
    own = {"namespace": names.SYSTEM_NAMESPACE}
    assert all(may(verb, core("secrets"), **own, name=names.FRONTEND_BROKER_SECRET) for verb in ("get", "watch"))
    assert not may("get", core("secrets"), **own, name=names.APISERVER_BROKER_SECRET)
    assert not may("get", core("secrets"))
    assert not any(may(verb, names.SIMULATION_SERVICES) for verb in WRITE)
    assert not any(may(verb, names.CLOUD_SITES) for verb in WRITE)
    assert not any(may("deletecollection", kind) for kind in served)
    assert not any(may("patch", kind, "status") for kind in served)
    assert not may("create", called(names.WORKERS), "actions/solve")
    for elsewhere in ("default", names.SYSTEM_NAMESPACE, ""):
        for kind in (*served[1:], names.SERVICE_ACTIONS):
            assert not any(may(verb, kind, namespace=elsewhere) for verb in (*READ, *WRITE)), (kind, elsewhere)
