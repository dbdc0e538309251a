"""Who may do what: the platform's own accounts, and the roles for its users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simyard.api import names
from simyard.api.base import Json
from simyard.build.frontend import KINDS as FRONTEND_KINDS
from simyard.build.frontend_account import BINDING as FRONTEND_BINDING
from simyard.build.frontend_account import ROLE_BINDINGS
from simyard.build.frontend_route import GATEWAY_KINDS
from simyard.build.metadata import metadata
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
        names.USAGES,
        names.LICENCES,
    )
]
_OCCI = [names.OCCI_MIXINS.plural, names.OCCI_LINKS.plural]
_TARGETS = [names.WORKERS.plural, names.WORKER_POOLS.plural, names.SIMULATION_SERVICES.plural]
_READ = ["get", "list", "watch"]
_CHANGE = ["create", "update", "patch", "delete", "deletecollection"]


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str], only: Sequence[str] = ()) -> Json:
    rule: Json = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    if only:
        rule["resourceNames"] = list(only)
    return rule


def _role(name: str, rules: list[Json], namespace: str = "", **labels: str) -> Json:
    return {
        "apiVersion": f"{_API_GROUP}/v1",
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": metadata(name, namespace, **labels),
        "rules": rules,
    }


def _binding(name: str, role_kind: str, role: str, account: str, account_namespace: str, namespace: str = "") -> Json:
    return {
        "apiVersion": f"{_API_GROUP}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": metadata(name, namespace),
        "roleRef": {"apiGroup": _API_GROUP, "kind": role_kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": account_namespace}],
    }


@dataclass(frozen=True, slots=True)
class Accounts:
    """Names of the platform's ServiceAccounts, of their roles and of their bindings."""

    operator: str = names.OPERATOR
    apiserver: str = names.APISERVER
    frontend: str = names.FRONTEND


DEFAULT_ACCOUNTS = Accounts()


def _account(
    name: str, namespace: str, cluster_rules: list[Json], namespaced_rules: list[Json], own_rules: list[Json]
) -> list[Json]:
    """Build a ServiceAccount with its rights.

    ``cluster_rules`` are about objects that have no namespace. ``namespaced_rules`` are about objects of the users'
    namespaces; a binding in each watched namespace can replace their ClusterRoleBinding. ``own_rules`` hold in the
    platform's own namespace.
    """
    in_cluster = f"{name}-cluster"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name, namespace)},
        _role(in_cluster, cluster_rules),
        _binding(in_cluster, "ClusterRole", in_cluster, name, namespace),
        _role(name, namespaced_rules),
        _binding(name, "ClusterRole", name, name, namespace),
        _role(name, own_rules, namespace),
        _binding(name, "Role", name, name, namespace, namespace),
    ]


def operator(namespace: str, accounts: Accounts = DEFAULT_ACCOUNTS) -> list[Json]:
    """The operator: writes what it owns, and reads no Secret outside of the platform's namespace."""
    of_the_cluster = [names.CLOUD_SITES.plural, names.LICENCES.plural]
    namespaced = [plural for plural in _ALL if plural not in of_the_cluster]
    owned_by_users = [names.SIMULATION_SERVICES.plural, names.WORKER_POOLS.plural]
    events = [_rule(group, ["events"], ["create", "patch"]) for group in ("", "events.k8s.io")]
    return [
        *_account(
            accounts.operator,
            namespace,
            [
                _rule(names.GROUP, [names.CLOUD_SITES.plural], [*_READ, "update", "patch"]),
                _rule(names.GROUP, [f"{plural}/status" for plural in of_the_cluster], ["get", "update", "patch"]),
                _rule(names.GROUP, [f"{plural}/finalizers" for plural in of_the_cluster], ["update"]),
                _rule(names.GROUP, [names.LICENCES.plural], _READ),
                _rule("apiextensions.k8s.io", ["customresourcedefinitions"], _READ),
            ],
            [
                _rule(names.GROUP, owned_by_users, [*_READ, "update", "patch"]),
                _rule(names.GROUP, [names.WORKERS.plural], [*_READ, *_CHANGE]),
                _rule(names.GROUP, [names.SERVICE_ACTIONS.plural], [*_READ, "update", "patch", "delete"]),
                _rule(names.GROUP, [names.USAGES.plural], [*_READ, "create"]),
                _rule(names.GROUP, [f"{plural}/status" for plural in namespaced], ["get", "update", "patch"]),
                _rule(names.GROUP, [f"{plural}/finalizers" for plural in namespaced], ["update"]),
                *events,
                # Frontends write in the namespace of their service alone, by a RoleBinding there.
                _rule(_API_GROUP, [ROLE_BINDINGS.plural], [*_READ, "create", "patch", "delete"], [FRONTEND_BINDING]),
                _rule(_API_GROUP, ["clusterroles"], ["bind"], [accounts.frontend]),
            ],
            [
                _rule("coordination.k8s.io", ["leases"], ["get", "create", "update", "patch"]),
                _rule("", ["secrets"], [*_READ, "create", "update"]),
                *(
                    _rule(kind.group, [kind.plural], [*_READ, "create", "patch", "delete"])
                    for kind in (*FRONTEND_KINDS, *GATEWAY_KINDS)
                ),
                _rule("", ["pods"], ["list"]),
                _rule(_API_GROUP, ["roles"], ["bind"], [accounts.frontend]),
            ],
        ),
        # Kubernetes has the Events of CloudSites in this namespace, also when it is not a watched one.
        _role(f"{accounts.operator}-events", events, "default"),
        _binding(
            f"{accounts.operator}-events",
            "Role",
            f"{accounts.operator}-events",
            accounts.operator,
            namespace,
            "default",
        ),
    ]


def sites() -> list[Json]:
    """What a site in a Kubernetes cluster needs there, one ClusterRole for each provider; bound to nobody.

    Who connects a CloudSite binds it to the operator's account, in all namespaces or in that of the machines: who makes
    pods in a namespace can reach all that the Secrets and accounts there can. It reads no Secret.
    """
    rules = {names.SITE_PODS: PODS, names.SITE_KUBEVIRT: (*MACHINES, VIRT_VERSION, *DISKS, *INSTANCETYPES)}
    return [
        _role(name, [_rule(rule.group, [rule.resource], rule.verbs) for rule in needed])
        for name, needed in rules.items()
    ]


def apiserver(namespace: str, accounts: Accounts = DEFAULT_ACCOUNTS) -> list[Json]:
    """The aggregated apiserver: reads what is called, asks whether the caller may, records Async calls."""
    return [
        *_account(
            accounts.apiserver,
            namespace,
            [_rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"])],
            [
                _rule(names.GROUP, _TARGETS, _READ),
                _rule(names.GROUP, [names.SERVICE_ACTIONS.plural], ["create", "get"]),
            ],
            [_rule("", ["secrets"], ["get", "watch"], only=[names.APISERVER_BROKER_SECRET])],
        ),
        _binding(
            f"{accounts.apiserver}-authentication",
            "Role",
            "extension-apiserver-authentication-reader",
            accounts.apiserver,
            namespace,
            "kube-system",
        ),
    ]


def frontend(namespace: str, accounts: Accounts = DEFAULT_ACCOUNTS) -> list[Json]:
    """The OCCI frontends: write what an OCCI client may, after they have asked whether this one may.

    The operator makes an account for the frontends of each service, and binds it to the two roles without ``-cluster``:
    in the service's namespace, and in the platform's for the broker's Secret. A binding without a namespace would take
    the operator too many rights, so all accounts of the platform's namespace may ask for reviews and read CloudSites.
    """
    in_cluster = f"{accounts.frontend}-cluster"
    binding = _binding(in_cluster, "ClusterRole", in_cluster, accounts.frontend, namespace)
    group = {"kind": "Group", "apiGroup": _API_GROUP, "name": f"system:serviceaccounts:{namespace}"}
    return [
        _role(
            in_cluster,
            [
                _rule(names.GROUP, [names.CLOUD_SITES.plural], _READ),
                _rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
                _rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
            ],
        ),
        {**binding, "subjects": [group]},
        _role(
            accounts.frontend,
            [
                _rule(names.GROUP, [*_TARGETS, *_OCCI], _READ),
                _rule(names.GROUP, _OCCI, ["create", "update", "patch", "delete"]),
                _rule(names.GROUP, [names.WORKERS.plural], ["create", "patch", "delete"]),
                _rule(names.GROUP, [names.WORKER_POOLS.plural], ["create", "patch", "delete"]),
                _rule(names.GROUP, [names.SERVICE_ACTIONS.plural], ["create", "get", "watch"]),
            ],
        ),
        _role(
            accounts.frontend,
            [_rule("", ["secrets"], ["get", "watch"], only=[names.FRONTEND_BROKER_SECRET])],
            namespace,
        ),
    ]


def user_roles() -> list[Json]:
    """ClusterRoles to bind to people, also added to Kubernetes' own ``view``, ``edit`` and ``admin``.

    ``simyard-view`` reads everything, ``simyard-edit`` runs pools and calls every action, ``simyard-vendor`` publishes
    services (code that runs in other people's pools, so it is not part of ``edit``), ``simyard-platform`` keeps the
    CloudSites and Licences of the whole cluster: bind it by a ClusterRoleBinding, to nobody else. RBAC knows no
    ``actions/*``: the right to all actions is the right to all subresources. CloudSites and Licences are in no
    namespace: to see them, a user needs one of the roles by a ClusterRoleBinding.
    """
    read = [_rule(names.GROUP, [*_ALL, *_OCCI], _READ), _rule(names.SUBRESOURCES_GROUP, ["*"], ["get"])]
    edit = [
        *read,
        _rule(names.GROUP, [names.WORKER_POOLS.plural, names.SERVICE_ACTIONS.plural, *_OCCI], _CHANGE),
        _rule(names.GROUP, [f"{names.WORKER_POOLS.plural}/scale"], ["get", "update", "patch"]),
        _rule(names.GROUP, [names.WORKERS.plural], ["update", "patch", "delete"]),
        _rule(names.SUBRESOURCES_GROUP, ["*"], ["create", "update", "patch"]),
    ]
    platform = [*read, _rule(names.GROUP, [names.CLOUD_SITES.plural, names.LICENCES.plural], _CHANGE)]
    vendor = [*read, _rule(names.GROUP, [names.SIMULATION_SERVICES.plural], _CHANGE)]

    def aggregated(*roles: str) -> dict[str, str]:
        return {f"{_API_GROUP}/aggregate-to-{role}": "true" for role in roles}

    return [
        _role("simyard-view", read, **aggregated("view", "edit", "admin")),
        _role("simyard-edit", edit, **aggregated("edit", "admin")),
        _role("simyard-vendor", vendor, **aggregated("admin")),
        _role("simyard-platform", platform),
    ]


def action_role(namespace: str, target: Resource, action: str, only: Sequence[str] = ()) -> Json:
    """A Role that permits one action and nothing else; ``only`` limits it to targets of these names.

    kube-apiserver checks the first segment of the subresource (``workerpools/actions``), the aggregated apiserver and
    the admission policy the whole of it (``workerpools/actions/solve``): both are needed.
    """
    subresources = [f"{target.plural}/actions", f"{target.plural}/actions/{action}"]
    return _role(
        f"call-{action}",
        [
            _rule(names.SUBRESOURCES_GROUP, subresources, ["create", "update"], only),
            _rule(names.GROUP, [names.SERVICE_ACTIONS.plural], [*_READ, "create", "update", "patch"]),
        ],
        namespace,
    )
