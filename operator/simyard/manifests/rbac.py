# SPDX-License-Identifier: Apache-2.0
"""RBAC: the permissions of the platform's own accounts, and the roles for its users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simyard.api import names
from simyard.api.base import Json
from simyard.manifests.frontend import KINDS as FRONTEND_KINDS
from simyard.manifests.frontend_account import BINDING as FRONTEND_BINDING
from simyard.manifests.frontend_account import ROLE_BINDINGS
from simyard.manifests.frontend_route import GATEWAY_KINDS
from simyard.manifests.metadata import build_metadata
from simyard_sites.kubernetes.resource import Resource
from simyard_sites.kubernetes.rights import DISKS, INSTANCETYPES, MACHINES, PODS, VIRT_VERSION

_API_GROUP = "rbac.authorization.k8s.io"
_ALL = [
    resource.plural
    for resource in (
        names.CLOUD_SITES,
        names.SIMULATION_SERVICES,
        names.WORKER_POOLS,
        names.WORKERS,
        names.SERVICE_ACTIONS,
        names.STUDIES,
        names.USAGES,
        names.LICENCES,
    )
]
_OCCI = [names.OCCI_MIXINS.plural, names.OCCI_LINKS.plural]
_TARGETS = [names.WORKERS.plural, names.WORKER_POOLS.plural, names.SIMULATION_SERVICES.plural]
_READ = ["get", "list", "watch"]
_CHANGE = ["create", "update", "patch", "delete", "deletecollection"]


def _build_rule(group: str, resources: Sequence[str], verbs: Sequence[str], only: Sequence[str] = ()) -> Json:
    rule: Json = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    if only:
        rule["resourceNames"] = list(only)
    return rule


def _build_role(name: str, rules: list[Json], namespace: str = "", **labels: str) -> Json:
    return {
        "apiVersion": f"{_API_GROUP}/v1",
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": build_metadata(name, namespace, **labels),
        "rules": rules,
    }


def _build_binding(
    name: str, role_kind: str, role: str, account: str, account_namespace: str, namespace: str = ""
) -> Json:
    return {
        "apiVersion": f"{_API_GROUP}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": build_metadata(name, namespace),
        "roleRef": {"apiGroup": _API_GROUP, "kind": role_kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": account_namespace}],
    }


@dataclass(frozen=True, slots=True)
class Accounts:
    """Names of the platform's ServiceAccounts, of their roles and of their bindings."""

    operator: str = names.OPERATOR
    apiserver: str = names.APISERVER
    frontend: str = names.FRONTEND
    optimiser: str = names.OPTIMISER


DEFAULT_ACCOUNTS = Accounts()


def _build_account(
    name: str, namespace: str, cluster_rules: list[Json], namespaced_rules: list[Json], own_rules: list[Json]
) -> list[Json]:
    """Build a ServiceAccount with its roles and bindings.

    ``cluster_rules`` are for cluster-scoped objects. ``namespaced_rules`` are for objects in the users' namespaces; a
    RoleBinding in each watched namespace can replace their ClusterRoleBinding. ``own_rules`` apply in the platform's
    own namespace; they can be empty.
    """
    in_cluster = f"{name}-cluster"
    own = [
        _build_role(name, own_rules, namespace),
        _build_binding(name, "Role", name, name, namespace, namespace),
    ]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": build_metadata(name, namespace)},
        _build_role(in_cluster, cluster_rules),
        _build_binding(in_cluster, "ClusterRole", in_cluster, name, namespace),
        _build_role(name, namespaced_rules),
        _build_binding(name, "ClusterRole", name, name, namespace),
        *(own if own_rules else ()),
    ]


def build_operator_rights(namespace: str, accounts: Accounts = DEFAULT_ACCOUNTS) -> list[Json]:
    """Return the operator's account, roles and bindings. It may read Secrets only in the platform's namespace."""
    of_the_cluster = [names.CLOUD_SITES.plural, names.LICENCES.plural]
    namespaced = [plural for plural in _ALL if plural not in of_the_cluster]
    owned_by_users = [names.SIMULATION_SERVICES.plural, names.WORKER_POOLS.plural]
    events = [_build_rule(group, ["events"], ["create", "patch"]) for group in ("", "events.k8s.io")]
    return [
        *_build_account(
            accounts.operator,
            namespace,
            [
                _build_rule(names.GROUP, [names.CLOUD_SITES.plural], [*_READ, "update", "patch"]),
                _build_rule(names.GROUP, [f"{plural}/status" for plural in of_the_cluster], ["get", "update", "patch"]),
                _build_rule(names.GROUP, [f"{plural}/finalizers" for plural in of_the_cluster], ["update"]),
                _build_rule(names.GROUP, [names.LICENCES.plural], _READ),
                _build_rule("apiextensions.k8s.io", ["customresourcedefinitions"], _READ),
                _build_rule("", ["namespaces"], ["get", "list"]),  # the keys of a namespace's files begin with its uid
            ],
            [
                _build_rule(names.GROUP, owned_by_users, [*_READ, "update", "patch"]),
                _build_rule(names.GROUP, [names.WORKERS.plural], [*_READ, *_CHANGE]),
                _build_rule(
                    names.GROUP,
                    [names.SERVICE_ACTIONS.plural, names.STUDIES.plural],
                    [*_READ, "update", "patch", "delete"],
                ),
                _build_rule(names.GROUP, [names.USAGES.plural], [*_READ, "create"]),
                _build_rule(names.GROUP, [names.STUDY_RECORDS.plural], ["get", "list", "create"]),
                _build_rule(names.GROUP, [f"{plural}/status" for plural in namespaced], ["get", "update", "patch"]),
                _build_rule(names.GROUP, [f"{plural}/finalizers" for plural in namespaced], ["update"]),
                *events,
                # A RoleBinding lets frontends write only in the namespace of their service.
                _build_rule(
                    _API_GROUP, [ROLE_BINDINGS.plural], [*_READ, "create", "patch", "delete"], [FRONTEND_BINDING]
                ),
                _build_rule(_API_GROUP, ["clusterroles"], ["bind"], [accounts.frontend]),
            ],
            [
                _build_rule("coordination.k8s.io", ["leases"], ["get", "create", "update", "patch"]),
                _build_rule("", ["secrets"], [*_READ, "create", "update"]),
                *(
                    _build_rule(kind.group, [kind.plural], [*_READ, "create", "patch", "delete"])
                    for kind in (*FRONTEND_KINDS, *GATEWAY_KINDS)
                ),
                _build_rule("", ["pods"], ["list"]),
                _build_rule(_API_GROUP, ["roles"], ["bind"], [accounts.frontend]),
            ],
        ),
        # Events about cluster-scoped CloudSites are in this namespace, even if the operator does not watch it.
        _build_role(f"{accounts.operator}-events", events, "default"),
        _build_binding(
            f"{accounts.operator}-events",
            "Role",
            f"{accounts.operator}-events",
            accounts.operator,
            namespace,
            "default",
        ),
    ]


def build_site_roles() -> list[Json]:
    """Return one ClusterRole, without a binding, for each provider that runs machines in a Kubernetes cluster.

    When the platform team connects a CloudSite, it binds the role to the operator's account, in all namespaces or only
    in the namespace of the machines. The choice matters, because an account that may create pods in a namespace can use
    all Secrets and accounts of this namespace. The role itself contains no permission for Secrets.
    """
    rules = {names.SITE_PODS: PODS, names.SITE_KUBEVIRT: (*MACHINES, VIRT_VERSION, *DISKS, *INSTANCETYPES)}
    return [
        _build_role(name, [_build_rule(rule.group, [rule.resource], rule.verbs) for rule in needed])
        for name, needed in rules.items()
    ]


def build_apiserver_rights(namespace: str, accounts: Accounts = DEFAULT_ACCOUNTS) -> list[Json]:
    """Return the account, roles and bindings of the aggregated apiserver.

    It reads the targets of calls, asks whether the caller may call them, and creates ServiceActions for Async calls.
    """
    return [
        *_build_account(
            accounts.apiserver,
            namespace,
            [_build_rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"])],
            [
                _build_rule(names.GROUP, _TARGETS, _READ),
                _build_rule(names.GROUP, [names.SERVICE_ACTIONS.plural], ["create", "get"]),
                _build_rule(names.GROUP, [names.STUDIES.plural], ["get"]),
                _build_rule(names.GROUP, [names.STUDY_RECORDS.plural], ["list"]),
                _build_rule("", ["namespaces"], ["get"]),  # the keys of a namespace's files begin with its uid
            ],
            [_build_rule("", ["secrets"], ["get", "watch"], only=[names.APISERVER_BROKER_SECRET])],
        ),
        _build_binding(
            f"{accounts.apiserver}-authentication",
            "Role",
            "extension-apiserver-authentication-reader",
            accounts.apiserver,
            namespace,
            "kube-system",
        ),
    ]


def build_optimiser_rights(namespace: str, accounts: Accounts = DEFAULT_ACCOUNTS) -> list[Json]:
    """Return the account and rights of the optimiser, which reads studies and writes their status."""
    return _build_account(
        accounts.optimiser,
        namespace,
        [_build_rule("", ["namespaces"], ["get"])],  # the keys of a namespace's files begin with its uid
        [
            _build_rule(names.GROUP, [names.STUDIES.plural], _READ),
            _build_rule(names.GROUP, [f"{names.STUDIES.plural}/status"], ["patch"]),
        ],
        [],
    )


def build_frontend_rights(namespace: str, accounts: Accounts = DEFAULT_ACCOUNTS) -> list[Json]:
    """Return the roles of OCCI frontends, which write on behalf of clients after a check of the client's permission.

    The operator creates an account for the frontends of each service. It binds the account to the two roles without
    ``-cluster``: in the service's namespace, and in the platform's namespace for the broker's Secret. If the operator
    also created ClusterRoleBindings, it would need too many permissions. So a fixed ClusterRoleBinding lets all
    accounts of the platform's namespace ask for access reviews and read CloudSites.
    """
    in_cluster = f"{accounts.frontend}-cluster"
    binding = _build_binding(in_cluster, "ClusterRole", in_cluster, accounts.frontend, namespace)
    group = {"kind": "Group", "apiGroup": _API_GROUP, "name": f"system:serviceaccounts:{namespace}"}
    return [
        _build_role(
            in_cluster,
            [
                _build_rule(names.GROUP, [names.CLOUD_SITES.plural], _READ),
                _build_rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
                _build_rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
            ],
        ),
        {**binding, "subjects": [group]},
        _build_role(
            accounts.frontend,
            [
                _build_rule(names.GROUP, [*_TARGETS, *_OCCI], _READ),
                _build_rule(names.GROUP, _OCCI, ["create", "update", "patch", "delete"]),
                _build_rule(names.GROUP, [names.WORKERS.plural], ["create", "patch", "delete"]),
                _build_rule(names.GROUP, [names.WORKER_POOLS.plural], ["create", "patch", "delete"]),
                _build_rule(names.GROUP, [names.SERVICE_ACTIONS.plural], ["create", "get", "watch"]),
                _build_rule(names.SUBRESOURCES_GROUP, [names.FILES.plural], ["get"]),
            ],
        ),
        _build_role(
            accounts.frontend,
            [_build_rule("", ["secrets"], ["get", "watch"], only=[names.FRONTEND_BROKER_SECRET])],
            namespace,
        ),
    ]


def build_user_roles() -> list[Json]:
    """Return the ClusterRoles for users; three are aggregated into Kubernetes' ``view``, ``edit`` and ``admin``.

    With ``simyard-view``, users read all objects. With ``simyard-edit``, they run pools and call every action. With
    ``simyard-vendor``, vendors publish services. Services are code that runs in other people's pools, so this
    permission is not a part of ``edit``. With ``simyard-platform``, the platform team writes the CloudSites and
    Licences of the cluster; a ClusterRoleBinding gives it to the platform team only. RBAC has no ``actions/*``, so the
    permission for all actions is the permission for all subresources. CloudSites and Licences are cluster-scoped, so
    users who want to see them need a ClusterRoleBinding to one of the roles.
    """
    read = [
        _build_rule(names.GROUP, [*_ALL, *_OCCI], _READ),
        _build_rule(names.SUBRESOURCES_GROUP, ["*"], ["get"]),
        _build_rule(names.SUBRESOURCES_GROUP, [names.FILES.plural], ["list"]),
    ]
    edit = [
        *read,
        _build_rule(
            names.GROUP,
            [names.WORKER_POOLS.plural, names.SERVICE_ACTIONS.plural, names.STUDIES.plural, *_OCCI],
            _CHANGE,
        ),
        _build_rule(names.GROUP, [f"{names.WORKER_POOLS.plural}/scale"], ["get", "update", "patch"]),
        _build_rule(names.GROUP, [names.WORKERS.plural], ["update", "patch", "delete"]),
        _build_rule(names.SUBRESOURCES_GROUP, ["*"], ["create", "update", "patch"]),
        _build_rule(names.SUBRESOURCES_GROUP, [names.FILES.plural], ["delete"]),
    ]
    platform = [*read, _build_rule(names.GROUP, [names.CLOUD_SITES.plural, names.LICENCES.plural], _CHANGE)]
    vendor = [*read, _build_rule(names.GROUP, [names.SIMULATION_SERVICES.plural], _CHANGE)]

    def aggregated(*roles: str) -> dict[str, str]:
        return {f"{_API_GROUP}/aggregate-to-{role}": "true" for role in roles}

    return [
        _build_role("simyard-view", read, **aggregated("view", "edit", "admin")),
        _build_role("simyard-edit", edit, **aggregated("edit", "admin")),
        _build_role("simyard-vendor", vendor, **aggregated("admin")),
        _build_role("simyard-platform", platform),
    ]


def build_action_role(namespace: str, target: Resource, action: str, only: Sequence[str] = ()) -> Json:
    """Return a Role that permits only one action; ``only`` limits it to targets with these names.

    kube-apiserver checks the first segment of the subresource (``workerpools/actions``). The aggregated apiserver and
    the admission policy check the whole subresource (``workerpools/actions/solve``). A caller needs both permissions.
    """
    subresources = [f"{target.plural}/actions", f"{target.plural}/actions/{action}"]
    return _build_role(
        f"call-{action}",
        [
            _build_rule(names.SUBRESOURCES_GROUP, subresources, ["create", "update"], only),
            _build_rule(
                names.GROUP,
                [names.SERVICE_ACTIONS.plural, names.STUDIES.plural],
                [*_READ, "create", "update", "patch"],
            ),
        ],
        namespace,
    )
