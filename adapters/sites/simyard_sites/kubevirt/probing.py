# SPDX-License-Identifier: Apache-2.0
"""Checks that a cluster can run our machines: the version of KubeVirt and the rights of our account."""

from __future__ import annotations

import asyncio

from simyard_sites.base import ErrorScope, InvalidSpecError, UnavailableError
from simyard_sites.kubernetes.access import check_rights
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import ApiError, NotFoundError
from simyard_sites.kubernetes.refusals import make_site_error
from simyard_sites.kubernetes.rights import DISKS, INSTANCETYPES, MACHINES
from simyard_sites.kubevirt.settings import DataVolume, Settings

API = "/apis/kubevirt.io/v1"
CDI = "/apis/cdi.kubevirt.io/v1beta1"
SUBRESOURCES = "/apis/subresources.kubevirt.io/v1"
NOT_INSTALLED = (
    "KubeVirt is not installed in the cluster: the API kubevirt.io/v1 is missing. Install KubeVirt, or create"
    " another CloudSite whose spec.provider.kubevirt.kubeconfigSecretRef names a cluster with KubeVirt"
)
NO_CDI = (
    "spec.provider.kubevirt.rootDisk.dataVolume: the Containerized Data Importer (CDI) is not installed in the cluster;"
    " install it, or use rootDisk.containerDisk"
)
_NO_API = ("could not find the requested resource", "404 page not found")


def lacks_api(error: ApiError) -> bool:
    """Return True if the kind of the object is absent, and not only the object."""
    return error.status == 404 and any(text in error.message for text in _NO_API)


async def probe_cluster(client: KubeClient, settings: Settings) -> str:
    """Return the version of KubeVirt.

    Raises:
        SiteError: The reason why machines cannot run in the cluster.
    """
    await _served(client, API, NOT_INSTALLED)
    if isinstance(settings.root_disk, DataVolume):
        await _served(client, CDI, NO_CDI)
    version, _ = await asyncio.gather(_version(client), _permitted(client, settings))
    return version


async def _served(client: KubeClient, path: str, otherwise: str) -> None:
    try:
        await client.request("GET", path)
    except NotFoundError:
        raise InvalidSpecError(otherwise, scope=ErrorScope.SITE) from None
    except ApiError as error:
        raise make_site_error(error) from error


async def _version(client: KubeClient) -> str:
    try:
        told = await client.request("GET", f"{SUBRESOURCES}/version")
    except ApiError as error:
        if error.status in (404, 503):
            raise UnavailableError(f"KubeVirt's virt-api does not answer: {error.message.strip()}") from error
        raise make_site_error(error) from error
    return f"KubeVirt {told.get('gitVersion') or 'of an unknown version'}"


async def _permitted(client: KubeClient, settings: Settings) -> None:
    rules = MACHINES + (DISKS if isinstance(settings.root_disk, DataVolume) else ())
    wanted = [(rule, settings.namespace) for rule in rules]
    for reference in filter(None, (settings.instancetype, settings.preference)):
        rule = next(rule for rule in INSTANCETYPES if rule.resource == f"{reference.kind.lower()}s")
        wanted.append((rule, "" if "Cluster" in reference.kind else settings.namespace))
    try:
        await check_rights(client, wanted, "docs/sites/kubevirt.md")
    except ApiError as error:
        raise make_site_error(error) from error
