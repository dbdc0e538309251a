# SPDX-License-Identifier: Apache-2.0
"""Permissions of a service's frontends: a separate account in the platform's namespace, and its role bindings.

An attacker who takes over a frontend has the permissions of its account. So the account can write only in the namespace
that the frontend serves. The accounts of all frontends that serve a namespace share one RoleBinding in it. The
RoleBinding has the same name in all namespaces, so that RBAC can limit the operator to RoleBindings of this name.
"""

from __future__ import annotations

from collections.abc import Iterable

from simyard.api import names
from simyard.api.base import Json
from simyard.manifests.metadata import build_metadata
from simyard_sites.kubernetes.resource import Resource

SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
ACCOUNT_KINDS = (SERVICE_ACCOUNTS, ROLE_BINDINGS)
BINDING = "simyard-frontends"


def build_role_binding_content(kind: str, role: str, accounts: Iterable[str], account_namespace: str) -> Json:
    """Build the content of a RoleBinding that gives accounts a Role or a ClusterRole."""
    return {
        "roleRef": {"apiGroup": ROLE_BINDINGS.group, "kind": kind, "name": role},
        "subjects": [
            {"kind": SERVICE_ACCOUNTS.kind, "name": name, "namespace": account_namespace} for name in accounts
        ],
    }


def build_namespace_binding(
    namespace: str, role: str, accounts: Iterable[str], platform: str, services: Iterable[tuple[str, str]]
) -> Json:
    """Build the RoleBinding with which accounts of the ``platform`` namespace serve a namespace.

    ``services`` are the names and uids of the SimulationServices that have frontends. These services own the
    RoleBinding, so Kubernetes deletes it with the last of them.
    """
    kind = names.SIMULATION_SERVICES
    owners = [{"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": uid} for name, uid in services]
    content = build_role_binding_content("ClusterRole", role, accounts, platform)
    return _build_object(ROLE_BINDINGS, {**build_metadata(BINDING, namespace), "ownerReferences": owners}, content)


def build_bound_account(name: str, namespace: str, platform: str, role: str = names.FRONTEND) -> list[Json]:
    """Build an account and its bindings for frontends that no operator manages and that serve a whole namespace."""
    reads, writes = (build_role_binding_content(kind, role, [name], platform) for kind in ("Role", "ClusterRole"))
    return [
        _build_object(SERVICE_ACCOUNTS, build_metadata(name, platform), {}),
        _build_object(ROLE_BINDINGS, build_metadata(name, platform), reads),
        _build_object(ROLE_BINDINGS, build_metadata(f"{name}-serves", namespace), writes),
    ]


def _build_object(kind: Resource, meta: Json, content: Json) -> Json:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **content}
