"""Who may do what: the platform's own accounts, and the roles for its users."""

from __future__ import annotations

from collections.abc import Sequence

from simyard.api import names
from simyard.api.base import Json
from simyard.build.frontend import KINDS as FRONTEND_KINDS
from simyard.build.metadata import metadata
from simyard_sites.kubernetes.resource import Resource
from simyard_sites.kubernetes.rights import DISKS, INSTANCETYPES, MACHINES, PODS

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


def _account(name: str, namespace: str, cluster_rules: list[Json], own_rules: list[Json]) -> list[Json]:
    """A ServiceAccount with rights in the whole cluster and others in the platform's own namespace."""
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name, namespace)},
        _role(name, cluster_rules),
        _binding(name, "ClusterRole", name, name, namespace),
        _role(name, own_rules, namespace),
        _binding(name, "Role", name, name, namespace, namespace),
    ]


def operator(namespace: str) -> list[Json]:
    """The operator: writes what it owns, and reads no Secret outside of the platform's namespace."""
    owned_by_users = [names.CLOUD_SITES.plural, names.SIMULATION_SERVICES.plural, names.WORKER_POOLS.plural]
    return _account(
        names.OPERATOR,
        namespace,
        [
            _rule(names.GROUP, owned_by_users, [*_READ, "update", "patch"]),
            _rule(names.GROUP, [names.WORKERS.plural], [*_READ, *_CHANGE]),
            _rule(names.GROUP, [names.SERVICE_ACTIONS.plural], [*_READ, "update", "patch", "delete"]),
            _rule(names.GROUP, [names.USAGES.plural], [*_READ, "create"]),
            _rule(names.GROUP, [f"{plural}/status" for plural in _ALL], ["get", "update", "patch"]),
            _rule(names.GROUP, [f"{plural}/finalizers" for plural in _ALL], ["update"]),
            *(_rule(group, ["events"], ["create", "patch"]) for group in ("", "events.k8s.io")),
            _rule("apiextensions.k8s.io", ["customresourcedefinitions"], _READ),
        ],
        [
            _rule("coordination.k8s.io", ["leases"], ["get", "create", "update", "patch"]),
            _rule("", ["secrets"], [*_READ, "create", "update"]),
            *(_rule(kind.group, [kind.plural], [*_READ, "create", "patch", "delete"]) for kind in FRONTEND_KINDS),
            _rule("", ["pods"], ["list"]),
        ],
    )


def sites() -> list[Json]:
    """What a site in a Kubernetes cluster needs there, one ClusterRole for each provider; bound to nobody.

    Who connects a CloudSite binds it to the operator's account, in all namespaces or in that of the machines: who makes
    pods in a namespace can reach all that the Secrets and accounts there can. It reads no Secret.
    """
    rules = {names.SITE_PODS: PODS, names.SITE_KUBEVIRT: (*MACHINES, *DISKS, *INSTANCETYPES)}
    return [
        _role(name, [_rule(rule.group, [rule.resource], rule.verbs) for rule in needed])
        for name, needed in rules.items()
    ]


def apiserver(namespace: str) -> list[Json]:
    """The aggregated apiserver: reads what is called, asks whether the caller may, records Async calls."""
    return [
        *_account(
            names.APISERVER,
            namespace,
            [
                _rule(names.GROUP, _TARGETS, _READ),
                _rule(names.GROUP, [names.SERVICE_ACTIONS.plural], ["create", "get"]),
                _rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
            ],
            [_rule("", ["secrets"], ["get", "watch"], only=[names.APISERVER_BROKER_SECRET])],
        ),
        _binding(
            f"{names.APISERVER}-authentication",
            "Role",
            "extension-apiserver-authentication-reader",
            names.APISERVER,
            namespace,
            "kube-system",
        ),
    ]


def frontend(namespace: str) -> list[Json]:
    """The OCCI frontends: write what an OCCI client may, after they have asked whether this one may."""
    served = [names.CLOUD_SITES.plural, *_TARGETS, *_OCCI]
    return _account(
        names.FRONTEND,
        namespace,
        [
            _rule(names.GROUP, served, _READ),
            _rule(names.GROUP, _OCCI, ["create", "update", "patch", "delete"]),
            _rule(names.GROUP, [names.WORKERS.plural], ["create", "patch", "delete"]),
            _rule(names.GROUP, [names.WORKER_POOLS.plural], ["create", "patch", "delete"]),
            _rule(names.GROUP, [names.SERVICE_ACTIONS.plural], ["create", "get", "watch"]),
            _rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
            _rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
        ],
        [_rule("", ["secrets"], ["get", "watch"], only=[names.FRONTEND_BROKER_SECRET])],
    )


def user_roles() -> list[Json]:
    """ClusterRoles to bind to people, also added to Kubernetes' own ``view``, ``edit`` and ``admin``.

    ``simyard-view`` reads everything, ``simyard-edit`` runs pools and calls every action, ``simyard-vendor`` publishes
    services (code that runs in other people's pools, so it is not part of ``edit``). RBAC knows no ``actions/*``: the
    right to all actions is the right to all subresources. CloudSites are in no namespace: to see them, a user needs
    one of the roles by a ClusterRoleBinding.
    """
    read = [_rule(names.GROUP, [*_ALL, *_OCCI], _READ), _rule(names.SUBRESOURCES_GROUP, ["*"], ["get"])]
    edit = [
        *read,
        _rule(names.GROUP, [names.WORKER_POOLS.plural, names.SERVICE_ACTIONS.plural, *_OCCI], _CHANGE),
        _rule(names.GROUP, [f"{names.WORKER_POOLS.plural}/scale"], ["get", "update", "patch"]),
        _rule(names.GROUP, [names.WORKERS.plural], ["update", "patch", "delete"]),
        _rule(names.SUBRESOURCES_GROUP, ["*"], ["create", "update", "patch"]),
    ]
    vendor = [*read, _rule(names.GROUP, [names.SIMULATION_SERVICES.plural], _CHANGE)]

    def aggregated(*roles: str) -> dict[str, str]:
        return {f"{_API_GROUP}/aggregate-to-{role}": "true" for role in roles}

    return [
        _role("simyard-view", read, **aggregated("view", "edit", "admin")),
        _role("simyard-edit", edit, **aggregated("edit", "admin")),
        _role("simyard-vendor", vendor, **aggregated("admin")),
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
