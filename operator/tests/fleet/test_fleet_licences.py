# SPDX-License-Identifier: Apache-2.0
"""The account of a licence's seats, and the pools that are woken when it changes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from simyard.api import names
from simyard.api.base import Condition, Json
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.fleet.pools.licences import MESSAGE_SECONDS, Licences
from simyard.fleet.registry import Registry, get_time
from simyard.fleet.wiring import connect
from simyard.kube.cache import Key
from simyard_sites.kubernetes.client import KubeClient

_versions = itertools.count(1)


@dataclass
class Desk:
    """Licences over objects that tests create, with the pools and services that they wake."""

    registry: Registry
    licences: Licences
    woken: dict[Key, float] = field(default_factory=dict)
    told: asyncio.Queue[Key] = field(default_factory=asyncio.Queue)

    def licence(self, name: str, seats: int, **spec: Any) -> None:
        raw = self._object("", name, {"seats": seats, **spec})
        self.registry.licences.learn(raw)

    def service(self, namespace: str, **licence: Any) -> None:
        spec = {
            "interface": {"attributes": [], "actions": []},
            "connector": {"python": {"class": "m:C"}},
            **({"licence": licence} if licence else {}),
        }
        self.registry.services.learn(self._object(namespace, "program", spec))

    def pool(self, namespace: str, name: str, replicas: int, status: Json | None = None) -> WorkerPool:
        spec = {"serviceRef": {"name": "program"}, "replicas": replicas}
        pool = self.registry.pools.learn({**self._object(namespace, name, spec), "status": status or {}})
        assert pool is not None
        return pool

    def worker(self, namespace: str, name: str, pool: str = "", licence: str = "") -> Worker:
        raw = self._object(namespace, name, {"serviceRef": {"name": "program"}, "site": "site"})
        if licence:
            raw["metadata"]["annotations"] = {names.ANNOTATION_LICENCE: licence}
        if pool:
            owner = {"kind": "WorkerPool", "name": pool, "uid": f"{namespace}-{pool}", "controller": True}
            raw["metadata"]["ownerReferences"] = [owner]
        worker = self.registry.workers.learn(raw)
        assert worker is not None
        return worker

    def waits(self, pool: WorkerPool) -> None:
        """Let a plan decide that a pool waits."""
        condition = Condition(
            type="LicenceAvailable", status="False", reason="WaitingForSeats", last_transition_time=get_time()
        )
        update = {"conditions": [condition], "observed_generation": 1, "licensed_replicas": 0}
        self.licences.count_plan(pool, pool.status.model_copy(update=update))

    async def looked_at(self, *namespaces: str) -> dict[Key, float]:
        """Return the pools that were woken after the licences of these namespaces were allotted.

        The services of a licence are told last.
        """
        expected = {(namespace, "program") for namespace in namespaces}
        async with asyncio.timeout(240):
            while expected:
                expected.remove(await self.told.get())
        woken = dict(self.woken)
        self.woken.clear()
        return woken

    @staticmethod
    def _object(namespace: str, name: str, spec: Json) -> Json:
        metadata = {
            "namespace": namespace,
            "name": name,
            "uid": f"{namespace}-{name}",
            "generation": 1,
            "resourceVersion": str(next(_versions)),
            "creationTimestamp": "2026-01-01T12:00:00Z",
        }
        return {"metadata": metadata, "spec": spec}


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    registry = Registry(cast(KubeClient, None))
    licences = Licences(registry)
    connect(registry, licences)
    made = Desk(registry, licences)
    licences.on_pool_due.append(lambda key, delay: made.woken.__setitem__(key, min(delay, made.woken.get(key, delay))))
    licences.on_change.append(made.told.put_nowait)
    running = asyncio.create_task(licences.run())
    yield made
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def seats(desk: Desk, pool: WorkerPool) -> int | None:
    given = desk.licences.allot_pool(pool, get_time())
    return given.seats if given is not None else None


async def test_without_a_licence_there_is_no_limit(desk: Desk) -> None:
    desk.service("a")
    assert seats(desk, desk.pool("a", "pool", 5)) is None


ACME = {"licenceRef": {"name": "acme"}}


async def test_the_seats_of_a_licence_count_over_all_namespaces_and_own_ones_for_the_service_alone(desk: Desk) -> None:
    desk.licence("acme", 4)
    desk.service("a", **ACME)
    desk.service("b", **ACME)
    desk.service("c", seats=1)
    desk.worker("b", "alone")
    desk.pool("b", "full", 2, {"observedGeneration": 1, "licensedReplicas": 2})
    assert seats(desk, desk.pool("a", "pool", 5)) == 1
    assert seats(desk, desk.pool("c", "own", 5)) == 1


async def test_nobody_can_take_away_the_seats_of_others_by_publishing_a_service(desk: Desk) -> None:
    desk.licence("acme", 4, allowedNamespaces={"from": "Selected", "names": ["a"]})
    desk.service("a", **ACME)
    desk.service("thief", **ACME)
    assert seats(desk, desk.pool("thief", "pool", 9)) == 0
    desk.service("other", seats=0, name="acme")
    assert seats(desk, desk.pool("a", "pool", 3)) == 3


async def test_a_namespace_gets_no_more_than_its_part_and_leaves_the_rest_to_others(desk: Desk) -> None:
    desk.licence("acme", 10, maxSeatsPerNamespace=3)
    desk.service("a", **ACME)
    desk.service("b", **ACME)
    desk.worker("a", "alone")
    assert seats(desk, desk.pool("a", "greedy", 9)) == 2
    assert seats(desk, desk.pool("b", "pool", 2)) == 2


async def test_a_licence_that_is_opened_or_created_wakes_the_pools_of_its_services(desk: Desk) -> None:
    desk.service("a", **ACME)
    pool = desk.pool("a", "pool", 2)
    given = desk.licences.allot_pool(pool, get_time())
    assert given is not None
    assert given.refusal is not None
    assert (given.seats, given.refusal[0]) == (0, "LicenceNotFound")
    desk.licence("acme", 2)
    assert ("a", "pool") in desk.woken
    assert seats(desk, pool) == 2


async def test_what_a_plan_granted_counts_before_its_workers_exist(desk: Desk) -> None:
    desk.service("a", seats=3)
    first, second = desk.pool("a", "first", 3), desk.pool("a", "second", 3)
    assert seats(desk, first) == 3
    desk.licences.count_plan(first, first.status.model_copy(update={"licensed_replicas": 3, "observed_generation": 1}))
    given = desk.licences.allot_pool(second, get_time())
    assert given is not None
    assert (given.seats, given.taken) == (0, 3)


async def test_of_the_namespace_names_are_known_and_of_others_nothing_but_the_sum(desk: Desk) -> None:
    desk.licence("acme", 9)
    desk.service("a", **ACME)
    desk.service("b", **ACME)
    for namespace in "ab":
        desk.pool(namespace, "pool", 1, {"observedGeneration": 1})
        desk.worker(namespace, "pool-0", "pool")
        desk.worker(namespace, "alone")
    given = desk.licences.allot_pool(desk.pool("a", "new", 1), get_time())
    assert given is not None
    assert {name: count for name, count in given.here.items() if count} == {"pool": 1, "": 1}
    assert given.taken == 4


async def test_who_waits_is_woken_when_a_seat_becomes_free_and_the_service_is_told(desk: Desk) -> None:
    desk.service("a", seats=1)
    desk.service("b", seats=1)
    holder = desk.worker("a", "alone")
    first, second, other = desk.pool("a", "first", 1), desk.pool("a", "second", 1), desk.pool("b", "other", 1)
    desk.waits(first)
    desk.waits(second)
    desk.waits(other)
    woken = await desk.looked_at("a", "b")
    assert woken[("a", "first")] == MESSAGE_SECONDS, "nothing is free: only its message may change"
    desk.registry.workers.forget(holder)
    assert await desk.looked_at("a") == {("a", "first"): 0.0, ("a", "second"): MESSAGE_SECONDS}
    assert desk.told.empty()
    status = desk.licences.get_status(desk.licences.list_sharing_services("a/program")[0])
    assert status is not None
    assert (status.seats, status.taken, status.waiting) == (1, 0, 2)


async def test_more_seats_wake_who_waits(desk: Desk) -> None:
    desk.service("a", seats=0)
    pool = desk.pool("a", "pool", 1)
    desk.waits(pool)
    await desk.looked_at("a")
    desk.service("a", seats=1)
    assert await desk.looked_at("a") == {("a", "pool"): 0.0}


async def test_a_pool_that_is_gone_gives_back_what_it_was_granted(desk: Desk) -> None:
    desk.service("a", seats=1)
    first, second = desk.pool("a", "first", 1), desk.pool("a", "second", 1)
    desk.licences.count_plan(first, first.status.model_copy(update={"licensed_replicas": 1, "observed_generation": 1}))
    assert seats(desk, second) == 0
    desk.registry.pools.forget(first)
    assert seats(desk, second) == 1


async def test_workers_hold_their_seats_when_their_service_is_deleted_until_they_are_gone(desk: Desk) -> None:
    desk.licence("acme", 3)
    desk.service("a", **ACME)
    desk.service("b", **ACME)
    desk.pool("b", "pool", 2, {"observedGeneration": 1})
    held = [desk.worker("b", f"pool-{slot}", "pool", "acme") for slot in range(2)]
    desk.worker("b", "forged", licence="acme")
    pool = desk.pool("a", "pool", 3)
    assert seats(desk, pool) == 0
    service = desk.registry.services.get("b", "program")
    assert service is not None
    desk.registry.services.forget(service)
    assert seats(desk, pool) == 1, "two are held; what a user's own Worker says of its licence is not believed"
    desk.waits(pool)
    await desk.looked_at("a")
    for worker in held:
        desk.registry.workers.forget(worker)
    assert await desk.looked_at("a") == {("a", "pool"): 0.0}
    assert seats(desk, pool) == 3
