# SPDX-License-Identifier: Apache-2.0
"""What the site makes of refusals, each as a simulated oned says it: whose it is, and which field it names."""

from typing import Any

import pytest

from simyard_simulators.oned import State
from simyard_sites.base import (
    CapacityExhaustedError,
    InvalidSpecError,
    MachineNotFoundError,
    PermissionDeniedError,
    SiteError,
)

IMAGE = "spec.images.openNebula"
TEMPLATE = "spec.provider.openNebula.template"
NETWORKS = "spec.provider.openNebula.networks"


@pytest.mark.parametrize(
    ("asked", "provider", "kind", "scope", "says"),
    [
        ({"image": "debain"}, {}, InvalidSpecError, "Pool", IMAGE),
        ({"image": "network"}, {}, InvalidSpecError, "Pool", IMAGE),
        ({"image": "99"}, {}, InvalidSpecError, "Pool", IMAGE),
        ({"image": "debian"}, {"imageOwner": "nobody"}, InvalidSpecError, "Pool", "imageOwner"),
        ({"image": "hidden"}, {}, PermissionDeniedError, "Pool", IMAGE),
        ({"cores": 0, "cpu_millis": 100}, {}, InvalidSpecError, "Pool", "spec.resources"),
        ({"memory_mib": 0}, {}, InvalidSpecError, "Pool", "spec.resources"),
        ({}, {"template": "without-image"}, InvalidSpecError, "Site", TEMPLATE),
        ({"image": "debian"}, {"template": "without-data"}, InvalidSpecError, "Site", TEMPLATE),
        ({}, {"networks": [{"name": "privat"}]}, InvalidSpecError, "Site", NETWORKS),
        ({}, {"networks": [{"name": "private", "owner": "nobody"}]}, InvalidSpecError, "Site", NETWORKS),
        ({}, {"networks": [{"name": "99"}]}, InvalidSpecError, "Site", NETWORKS),
        ({}, {"networks": [{"name": "full", "owner": "oneadmin"}]}, CapacityExhaustedError, "Site", "address range"),
    ],
)
async def test_a_refusal_is_the_pools_or_the_sites(
    yard: Any, outcomes: Any, asked: Any, provider: Any, kind: type[SiteError], scope: str, says: str
) -> None:
    cloud = yard.oned.cloud
    cloud.add_image("hidden", permissions="600")
    cloud.add_network("full").leases = 0
    cloud.add_template("without-image", 'CPU="1"\nMEMORY="64"\nDISK=[IMAGE="no",IMAGE_UNAME="oneadmin"]')
    disks = 'DISK=[IMAGE="debian",IMAGE_UNAME="oneadmin"]\nDISK=[IMAGE="data",IMAGE_UNAME="oneadmin"]'
    cloud.add_template("without-data", f'CPU="1"\nMEMORY="64"\n{disks}')
    [outcome] = await outcomes(yard.site(**provider).create([yard.request("a", **asked)]))
    assert (type(outcome.error), outcome.error.scope.value) == (kind, scope)
    assert says in str(outcome.error)


async def test_restricted_attributes_that_the_template_has_are_repeated_as_they_are(yard: Any, outcomes: Any) -> None:
    disk = 'DISK=[IMAGE="debian",IMAGE_UNAME="oneadmin",TOTAL_BYTES_SEC="1000000"]'
    yard.oned.cloud.add_template("limited", f'CPU="1"\nMEMORY="64"\n{disk}\nCONTEXT=[FILES="/srv/init.sh"]')
    [outcome] = await outcomes(yard.site(template="limited").create([yard.request("a", image="debian")]))
    assert outcome.error is None


async def test_a_machine_that_was_given_to_somebody_else_does_not_hide_the_others(yard: Any, outcomes: Any) -> None:
    site = yard.site()
    seen = yard.watch(site)
    given, ended = await yard.create(site, "given", "ended")
    await seen.until_all("Running", "given", "ended")
    vm = yard.vm(given)
    vm.uid, vm.gid = 0, 0
    yard.oned.cloud.index(yard.vm(ended), State.DONE, yard.vm(ended).lcm)
    await seen.until_all("Running", "given")
    [outcome] = await outcomes(yard.site().get([given.id]))
    assert isinstance(outcome.error, MachineNotFoundError)
