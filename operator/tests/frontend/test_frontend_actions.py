# SPDX-License-Identifier: Apache-2.0
"""Actions of computes, applications, components and services."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from frontend_objects import ADA, Bench, pool, service, worker

from simyard.api import names
from simyard.api.base import Json
from simyard.frontend.backend import Invocation
from simyard.occi.errors import OcciError
from simyard.occi.model import Draft
from simyard.occi.standard import (
    APPLICATION_ACTION_SCHEME,
    COMPONENT_ACTION_SCHEME,
    COMPUTE_ACTION_SCHEME,
)
from simyard.occi.validation import check_invocation
from simyard_sites.kubernetes.resource import Resource

SCALE = "http://simyard.dev/occi/platform/action#scale"
START_WORKERS = "http://cloud4e/beam/action#start_workers"


async def act(bench: Bench, action: str, *paths: str, waits: bool | None = None, **given: Any) -> Any:
    entities = [bench.entity(path) for path in paths]
    found, attributes = check_invocation(
        Draft(action=action, attributes=given), action.rpartition("#")[2], entities, bench.objects.get_model()
    )
    return await bench.objects.act(entities, Invocation(ADA, found, attributes, waits))


async def turns() -> None:
    """Let other tasks run until they wait for something from outside."""
    for _ in range(20):
        await asyncio.sleep(0)


def spec(bench: Bench, resource: Resource, name: str) -> Json:
    return dict(bench.stored(resource)[name]["spec"])


@pytest.mark.parametrize(
    ("term", "machine", "power_state"),
    [("stop", "Running", "Stopped"), ("suspend", "Running", "Suspended"), ("start", "Stopped", "Running")],
)
async def test_power_actions_say_what_the_machine_should_do(term: str, machine: str, power_state: str) -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker(machine=machine, ready=machine == "Running"))
    await act(bench, COMPUTE_ACTION_SCHEME + term, "/compute/uid-w")
    assert spec(bench, names.WORKERS, "w")["powerState"] == power_state


async def test_each_restart_asks_for_one_more() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    for count in (1, 2):
        await act(bench, f"{COMPUTE_ACTION_SCHEME}restart", "/compute/uid-w")
        assert spec(bench, names.WORKERS, "w")["restarts"] == count


async def test_two_who_restart_at_the_same_moment_restart_once() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker(restarts=3))

    def another(verb: str, plural: str, name: str) -> None:
        bench.kube.before = lambda *_: None
        bench.kube.touch(names.WORKERS, "w")["spec"]["restarts"] = 4

    bench.kube.before = another
    await act(bench, f"{COMPUTE_ACTION_SCHEME}restart", "/compute/uid-w")
    assert spec(bench, names.WORKERS, "w")["restarts"] == 4


async def test_who_waits_for_a_stop_hears_of_it_when_the_machine_has_stopped() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    waiting = asyncio.create_task(act(bench, f"{COMPUTE_ACTION_SCHEME}stop", "/compute/uid-w", waits=True))
    await turns()
    assert spec(bench, names.WORKERS, "w")["powerState"] == "Stopped"
    assert not waiting.done()
    bench.put(names.WORKERS, worker(machine="Stopped", ready=False, reason="Stopped"))
    assert await waiting is None
    impatient = bench.beside(names.WORKERS, wait_seconds=0.01)
    with pytest.raises(OcciError, match="not done after") as late:
        await act(impatient, f"{COMPUTE_ACTION_SCHEME}start", "/compute/uid-w", waits=True)
    assert late.value.status == 504


async def test_start_workers_makes_a_pool_scales_it_up_and_never_down() -> None:
    bench = Bench().fill()
    bench.forget(names.WORKER_POOLS, "pool")
    for count, replicas in ((4, 4), (2, 4), (9, 9), (9, 9)):
        await act(bench, START_WORKERS, "/application/uid-beam", n=count)
        assert spec(bench, names.WORKER_POOLS, "beam") == {"serviceRef": {"name": "beam"}, "replicas": replicas}


async def test_start_workers_uses_the_only_pool_and_resumes_it() -> None:
    bench = Bench().fill()
    bench.put(names.WORKER_POOLS, pool(suspend=True))
    await act(bench, START_WORKERS, "/application/uid-beam", n=3)
    assert (
        spec(bench, names.WORKER_POOLS, "pool")["replicas"],
        spec(bench, names.WORKER_POOLS, "pool")["suspend"],
    ) == (
        3,
        False,
    )
    bench.put(names.WORKER_POOLS, pool("second"))
    with pytest.raises(OcciError, match="2 components") as refused:
        await act(bench, START_WORKERS, "/application/uid-beam", n=3)
    assert refused.value.status == 409
    bench.put(names.WORKER_POOLS, pool("beam"))
    await act(bench, START_WORKERS, "/application/uid-beam", n=6)
    assert spec(bench, names.WORKER_POOLS, "beam")["replicas"] == 6


async def test_start_workers_waits_for_the_end_of_a_pool_that_is_deleted() -> None:
    bench = Bench().fill()
    bench.forget(names.WORKER_POOLS, "pool")
    ending = pool("beam", replicas=2)
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:01Z"
    bench.put(names.WORKER_POOLS, ending)
    with pytest.raises(OcciError, match="is being deleted: try again") as refused:
        await act(bench, START_WORKERS, "/application/uid-beam", n=4)
    assert refused.value.status == 409
    assert spec(bench, names.WORKER_POOLS, "beam")["replicas"] == 2


async def test_a_pool_of_another_service_is_left_alone() -> None:
    bench = Bench().fill(services=iter([service(), service("plate")]))
    bench.forget(names.WORKER_POOLS, "pool")
    bench.kube.put(names.WORKER_POOLS, pool("beam", service="plate"))
    with pytest.raises(OcciError) as refused:
        await act(bench, START_WORKERS, "/application/uid-beam", n=1)
    assert refused.value.status == 409


@pytest.mark.parametrize("by_query", [True, False])
async def test_who_waits_for_workers_hears_when_all_are_ready(by_query: bool) -> None:
    bench = Bench().fill()
    given = {} if by_query else {"wait": True}
    waiting = asyncio.create_task(act(bench, SCALE, "/component/uid-pool", waits=by_query, replicas=2, **given))
    await turns()
    assert spec(bench, names.WORKER_POOLS, "pool")["replicas"] == 2

    def observed(generation: int, ready: int) -> None:
        raw = bench.kube.touch(names.WORKER_POOLS, "pool")
        raw["status"] = {"observedGeneration": generation, "readyReplicas": ready}
        bench.put(names.WORKER_POOLS, raw)

    for generation, ready in ((1, 2), (2, 1)):
        observed(generation, ready)
        await turns()
        assert not waiting.done()
    observed(2, 2)
    assert await waiting is None
    with pytest.raises(OcciError, match="2 of 5 workers are ready") as late:
        await act(bench.beside(wait_seconds=0.01), SCALE, "/component/uid-pool", waits=True, replicas=5)
    assert late.value.status == 504


async def test_stopping_an_application_suspends_all_its_pools_and_starting_it_resumes_them() -> None:
    bench = Bench().fill()
    bench.put(names.WORKER_POOLS, pool("second"))
    await act(bench, f"{APPLICATION_ACTION_SCHEME}stop", "/application/uid-beam")
    assert all(raw["spec"]["suspend"] for raw in bench.stored(names.WORKER_POOLS).values())
    await act(bench, f"{COMPONENT_ACTION_SCHEME}start", "/component/uid-second")
    assert spec(bench, names.WORKER_POOLS, "second")["suspend"] is False
    await act(bench, f"{APPLICATION_ACTION_SCHEME}start", "/application/uid-beam")
    assert not any(raw["spec"]["suspend"] for raw in bench.stored(names.WORKER_POOLS).values())


async def test_an_action_on_a_collection_is_done_on_every_member_and_the_failure_of_one_is_told() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker("a"), worker("b"), worker("c"))
    paths = [f"/compute/uid-{name}" for name in "abc"]
    del bench.kube.objects["workers", "b"]
    with pytest.raises(OcciError) as failed:
        await act(bench, f"{COMPUTE_ACTION_SCHEME}stop", *paths)
    assert failed.value.status == 404
    assert {spec(bench, names.WORKERS, name)["powerState"] for name in "ac"} == {"Stopped"}


async def test_an_async_action_is_recorded_once_for_one_request() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    shown = bench.entity("/compute/uid-w")
    action = bench.objects.get_model().find_action("http://cloud4e/beam/action#sweep")
    assert action is not None
    invocation = Invocation(ADA, action, {}, wait=False, key="message")
    results = [await bench.objects.act([shown], invocation) for _ in range(2)]
    [recorded] = bench.stored(names.SERVICE_ACTIONS).values()
    assert results == [{"org.simyard.serviceaction": recorded["metadata"]["name"]}] * 2
    assert recorded["metadata"]["annotations"][names.ANNOTATION_REQUESTED_BY] == "ada"


async def test_who_does_not_wait_for_a_sync_action_has_it_recorded() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    body = 'Category: solve; scheme="http://cloud4e/beam/action#"; class="action"\nX-OCCI-Attribute: load=3'
    for target, content in (("wait=false", body), ("wait=false&load=3", "")):
        answer = await bench.ask("POST", f"/compute/uid-w?action=solve&{target}", content)
        assert (answer.status, b"org.simyard.serviceaction" in answer.body) == (200, True)
    assert [raw["spec"]["parameters"] for raw in bench.stored(names.SERVICE_ACTIONS).values()] == [{"load": 3}] * 2


async def test_a_sync_action_without_a_broker_is_503() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    with pytest.raises(Exception, match="broker") as failed:
        await act(bench, "http://cloud4e/beam/action#solve", "/compute/uid-w", load=1)
    assert getattr(failed.value, "code", 0) == 503


async def test_refreshing_without_a_broker_keeps_what_is_known() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, *(worker(f"w{n}", values={"length": n}) for n in range(50)))
    shown = list(bench.objects.list_entities(bench.objects.list_paths("/compute/")))
    await bench.objects.refresh(shown, 0.05)
    assert list(bench.objects.list_entities(bench.objects.list_paths("/compute/"))) == shown
