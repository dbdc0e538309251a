"""Everything that an installation needs before its processes start."""

from __future__ import annotations

from simyard.api import names
from simyard.api.base import Json
from simyard.build import admission, apiservice, rbac, sizes
from simyard.build.crds import custom_resource_definitions
from simyard.build.metadata import metadata
from simyard.build.rbac import DEFAULT_ACCOUNTS, Accounts


def objects(namespace: str = names.SYSTEM_NAMESPACE, endpoint: apiservice.Endpoint | None = None) -> list[Json]:
    """The objects in the order in which to apply them; without an endpoint there is no aggregated API.

    On removal, delete the APIService first: a dead one keeps namespaces from being deleted.
    """
    aggregation: list[Json] = []
    if endpoint is not None:
        aggregation = [apiservice.service(namespace, endpoint), apiservice.api_service(namespace, endpoint)]
    return [
        *custom_resource_definitions(),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata(namespace)},
        *access(namespace),
        *aggregation,
    ]


def access(namespace: str, accounts: Accounts = DEFAULT_ACCOUNTS) -> list[Json]:
    """Accounts, roles and admission policies."""
    return [
        *rbac.operator(namespace, accounts),
        *rbac.sites(),
        *rbac.apiserver(namespace, accounts),
        *rbac.frontend(namespace, accounts),
        *rbac.user_roles(),
        *admission.actions(namespace, accounts),
        *admission.ownership(namespace, accounts),
        *admission.placement(),
        *admission.sites_of_workers(namespace, accounts),
        *sizes.sizes(),
    ]
