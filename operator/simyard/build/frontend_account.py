"""The rights of a service's frontends: an account of their own in the platform's namespace, and what binds it.

Whoever takes over a frontend has its account's rights. So the account may write in the one namespace that it serves.
The accounts of all frontends of a namespace share one RoleBinding there. Its name is the same in all namespaces, so
that RBAC can limit the operator to RoleBindings of this name.
"""

from __future__ import annotations

from collections.abc import Iterable

from simyard.api import names
from simyard.api.base import Json
from simyard.build.metadata import metadata
from simyard_sites.kubernetes.resource import Resource

SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
ACCOUNT_KINDS = (SERVICE_ACCOUNTS, ROLE_BINDINGS)
BINDING = "simyard-frontends"


def bind_role(kind: str, role: str, accounts: Iterable[str], account_namespace: str) -> Json:
    """Build the content of a RoleBinding that gives accounts a Role or a ClusterRole."""
    return {
        "roleRef": {"apiGroup": ROLE_BINDINGS.group, "kind": kind, "name": role},
        "subjects": [
            {"kind": SERVICE_ACCOUNTS.kind, "name": name, "namespace": account_namespace} for name in accounts
        ],
    }


def namespace_binding(
    namespace: str, role: str, accounts: Iterable[str], platform: str, services: Iterable[tuple[str, str]]
) -> Json:
    """Build the RoleBinding by which accounts of the ``platform`` namespace serve a namespace.

    ``services``: name and uid of the SimulationServices there that have frontends; the binding goes with the last one.
    """
    kind = names.SIMULATION_SERVICES
    owners = [{"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": uid} for name, uid in services]
    content = bind_role("ClusterRole", role, accounts, platform)
    return _object(ROLE_BINDINGS, {**metadata(BINDING, namespace), "ownerReferences": owners}, content)


def bound_account(name: str, namespace: str, platform: str, role: str = names.FRONTEND) -> list[Json]:
    """Build an account for frontends that no operator makes, with what binds it: they serve a whole namespace."""
    reads, writes = (bind_role(kind, role, [name], platform) for kind in ("Role", "ClusterRole"))
    return [
        _object(SERVICE_ACCOUNTS, metadata(name, platform), {}),
        _object(ROLE_BINDINGS, metadata(name, platform), reads),
        _object(ROLE_BINDINGS, metadata(f"{name}-serves", namespace), writes),
    ]


def _object(kind: Resource, meta: Json, content: Json) -> Json:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **content}
