# SPDX-License-Identifier: Apache-2.0
"""Role ``simyard check``, which tests an installation; ``helm test`` runs it."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from simyard.api import names
from simyard.cli.output import say
from simyard.kube.lease import LEASES
from simyard.manifests.crds import DEFINITIONS
from simyard.serving.checks import HealthCheck
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import ApiError
from simyard_sites.kubernetes.resource import Resource

_CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
_AGGREGATED = f"/apis/{names.SUBRESOURCES_GROUP}/{names.VERSION}"
_PAUSE_SECONDS = 1.0


@click.command()
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False, path_type=Path), envvar="KUBECONFIG",
              help="The kubeconfig file. Default: the cluster of this process.")  # fmt: skip
@click.option("--namespace", default=names.SYSTEM_NAMESPACE, envvar="SIMYARD_NAMESPACE", show_default=True,
              help="The namespace of the platform.")  # fmt: skip
@click.option("--lease-name", default=names.OPERATOR, show_default=True, help="The name of the Lease of the operators.")
@click.option("--apiserver", is_flag=True, help="Check the aggregated API, too.")
@click.option("--timeout", type=click.FloatRange(min=0), default=60.0, show_default=True,
              help="The longest time to wait for success, in seconds.")  # fmt: skip
def check(kubeconfig: Path | None, namespace: str, lease_name: str, apiserver: bool, timeout: float) -> None:
    """Check the kinds, the leading operator and the aggregated API of an installation; exit with 1 on a failure."""
    findings = asyncio.run(_check(kubeconfig, namespace, lease_name, apiserver, timeout))
    for finding in findings:
        say(f"{'ok' if finding.good else 'FAILED':7}{finding.name}: {finding.detail}")
    sys.exit(0 if all(finding.good for finding in findings) else 1)


async def _check(
    kubeconfig: Path | None, namespace: str, lease_name: str, apiserver: bool, timeout: float
) -> list[HealthCheck]:
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout
    async with await KubeClient.connect(kubeconfig) as client:
        while True:
            checks = [_kinds(client), _leader(client, namespace, lease_name)]
            if apiserver:
                checks.append(_aggregated(client))
            findings = list(await asyncio.gather(*checks))
            if all(finding.good for finding in findings) or clock() >= deadline:
                return findings
            await asyncio.sleep(_PAUSE_SECONDS)


async def _kinds(client: KubeClient) -> HealthCheck:
    missing = []
    for resource in (definition.resource for definition in DEFINITIONS):
        try:
            found = await client.get(_CRDS, f"{resource.plural}.{resource.group}")
        except ApiError as error:
            missing.append(f"{resource.plural} ({error})")
            continue
        conditions = {item["type"]: item["status"] for item in found.get("status", {}).get("conditions", [])}
        if conditions.get("Established") != "True":
            missing.append(f"{resource.plural} (not established)")
    return HealthCheck("kinds", not missing, "not usable: " + ", ".join(missing) if missing else "all are established")


async def _leader(client: KubeClient, namespace: str, lease_name: str) -> HealthCheck:
    try:
        spec = (await client.get(LEASES, lease_name, namespace))["spec"]
    except ApiError as error:
        return HealthCheck("operator", False, f"Lease {namespace}/{lease_name}: {error}")
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    if not holder or not renewed:
        return HealthCheck("operator", False, f"no operator holds the Lease {namespace}/{lease_name}")
    age = (datetime.now(UTC) - datetime.fromisoformat(renewed)).total_seconds()
    good = age <= spec["leaseDurationSeconds"]
    return HealthCheck("operator", good, f"{holder} {'leads' if good else 'led'}, renewed {age:.0f} s ago")


async def _aggregated(client: KubeClient) -> HealthCheck:
    try:
        found = await client.request("GET", _AGGREGATED)
    except ApiError as error:
        return HealthCheck("aggregated API", False, str(error))
    return HealthCheck("aggregated API", True, f"{len(found['resources'])} resources")
