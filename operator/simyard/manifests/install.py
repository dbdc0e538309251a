# SPDX-License-Identifier: Apache-2.0
"""Objects of an installation that must exist before its processes start."""

from __future__ import annotations

from simyard.api import names
from simyard.api.base import Json
from simyard.manifests import admission, apiservice, rbac, sizes
from simyard.manifests.crds import build_crds
from simyard.manifests.metadata import build_metadata
from simyard.manifests.rbac import DEFAULT_ACCOUNTS, Accounts


def build_objects(namespace: str = names.SYSTEM_NAMESPACE, endpoint: apiservice.Endpoint | None = None) -> list[Json]:
    """Return the objects in the order in which to apply them. Without an endpoint, there is no aggregated API.

    To remove the objects, delete the APIService first: an unreachable APIService blocks the deletion of namespaces.
    """
    aggregation: list[Json] = []
    if endpoint is not None:
        aggregation = [apiservice.build_service(namespace, endpoint), apiservice.build_api_service(namespace, endpoint)]
    return [
        *build_crds(),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": build_metadata(namespace)},
        *build_access(namespace),
        *aggregation,
    ]


def build_access(namespace: str, accounts: Accounts = DEFAULT_ACCOUNTS) -> list[Json]:
    """Return the accounts, roles and admission policies of an installation."""
    return [
        *rbac.build_operator_rights(namespace, accounts),
        *rbac.build_site_roles(),
        *rbac.build_apiserver_rights(namespace, accounts),
        *rbac.build_optimiser_rights(namespace, accounts),
        *rbac.build_frontend_rights(namespace, accounts),
        *rbac.build_user_roles(),
        *admission.build_action_policy(namespace, accounts),
        *admission.build_study_policy(),
        *admission.build_ownership_policy(namespace, accounts),
        *admission.build_placement_policy(),
        *admission.build_worker_site_policy(namespace, accounts),
        *sizes.build_size_policies(namespace, accounts),
    ]
