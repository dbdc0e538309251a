# SPDX-License-Identifier: Apache-2.0
"""The refusals of the last step before a machine is created, for Workers of any author."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_site import SITE, Bench, until

from simyard.api.base import Json
from simyard.api.cloud_site import CloudSiteSpec

POOL: Json = {
    "metadata": {"name": "pool", "namespace": "ns", "uid": "pool-uid", "resourceVersion": "1"},
    "spec": {"serviceRef": {"name": "service"}},
}
OWNER: Json = {"kind": "WorkerPool", "name": "pool", "uid": "pool-uid", "controller": True}


def spec(**changes: Any) -> CloudSiteSpec:
    return CloudSiteSpec.model_validate({**SITE["spec"], "orphanGraceSeconds": 0, **changes})


def denials(bench: Bench) -> dict[str, str]:
    return {
        uid.split("-uid")[0].rstrip("-"): seen["denied"]
        for uid, seen in bench.statuses.seen.items()
        if "denied" in seen
    }


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"allowedNamespaces": {"from": "Selected", "names": ["another"]}}, "is not open to namespace ns"),
        ({"trust": "External"}, "is External: it runs only workers of a WorkerPool whose spec.placement.consent"),
        ({"cordoned": True}, "is cordoned"),
        ({"limits": {"maxWorkers": 0}}, "has its maximum of 0 workers"),
    ],
)
async def test_a_worker_gets_no_machine_where_its_site_forbids_it_and_one_when_it_permits(
    changes: Json, why: str
) -> None:
    bench = Bench()
    bench.runner.adjust(spec(**changes))
    bench.worker("lone")
    async with bench.running():
        await until(lambda: "lone" in denials(bench))
        assert denials(bench)["lone"].startswith(f"CloudSite site {why}")
        assert (bench.site.machines, bench.site.asked) == ({}, [])
        bench.runner.adjust(spec())
        await until(lambda: bench.site.machines)
    assert denials(bench) == {"lone": ""}


async def test_an_external_site_runs_workers_of_pools_that_consent() -> None:
    bench = Bench()
    bench.runner.adjust(spec(trust="External"))
    bench.registry.pools.learn({**POOL, "spec": {**POOL["spec"], "placement": {"consent": ["site"]}}})
    bench.worker("pool-0", owners=[OWNER])
    bench.worker("pool-1", owners=[{**OWNER, "uid": "another"}])
    async with bench.running():
        await until(lambda: bench.site.machines and denials(bench))
    assert bench.site.asked == ["create pool-0"]
    assert set(denials(bench)) == {"pool-1"}


async def test_no_more_machines_than_max_workers_and_the_next_when_one_has_gone() -> None:
    bench = Bench()
    bench.runner.adjust(spec(limits={"maxWorkers": 2}))
    workers = [bench.worker(f"w-{number}") for number in range(4)]
    async with bench.running():
        await until(lambda: len(bench.site.machines) == 2 and len(denials(bench)) == 2)
        made = {machine.owner.worker for machine in bench.site.machines.values()}
        gone = next(worker for worker in workers if worker.metadata.name in made)
        bench.registry.workers.forget(gone)
        await until(lambda: sum(item.startswith("create ") for item in bench.site.asked) == 3)
        await until(lambda: len(bench.site.machines) == 2)
    assert sum(why != "" for why in denials(bench).values()) == 1


async def test_what_runs_goes_on_when_its_site_is_closed() -> None:
    bench = Bench()
    bench.worker("lone")
    async with bench.running():
        await until(lambda: bench.site.machines)
        bench.runner.adjust(spec(allowedNamespaces={"from": "Selected", "names": ["another"]}, cordoned=True))
        bench.worker("other")
        await until(lambda: "other" in denials(bench))
        assert len(bench.site.machines) == 1
    assert denials(bench).keys() == {"other"}
