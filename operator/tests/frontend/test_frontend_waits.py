# SPDX-License-Identifier: Apache-2.0
"""Actions with a client that waits, and the actions that are available meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from frontend_objects import NAMESPACE, Bench, pool, worker

from simyard.api import names
from simyard.frontend.exchange import OcciResponse
from simyard.guest.messages import Registered
from simyard.guest.values import ClaimedAttributes
from simyard.messaging.events import ReceivedEvent
from simyard.occi.standard import APPLICATION_ACTION_SCHEME, COMPONENT_ACTION_SCHEME, COMPUTE_ACTION_SCHEME

SOLVE = 'Category: solve; scheme="http://cloud4e/beam/action#"; class="action"\nX-OCCI-Attribute: load=3'


def action(term: str, scheme: str = COMPUTE_ACTION_SCHEME) -> str:
    return f'Category: {term}; scheme="{scheme}"; class="action"\n'


async def begun(bench: Bench, target: str, body: str) -> asyncio.Task[OcciResponse]:
    """Start a request, and let it run until it waits for something from outside."""
    task = asyncio.create_task(bench.ask("POST", target, body))
    for _ in range(50):
        await asyncio.sleep(0)
    return task


def worker_is(bench: Bench, *, ready: bool = True, machine: str = "Running", restarts: int = 0) -> None:
    """Store the status that the operator would write."""
    raw = bench.kube.touch(names.WORKERS, "w")
    raw["status"] = {**worker(ready=ready, machine=machine)["status"], "restarts": restarts}
    bench.put(names.WORKERS, raw)


def pool_is(bench: Bench, name: str, ready: int) -> None:
    raw = bench.kube.touch(names.WORKER_POOLS, name)
    raw["status"] |= {"observedGeneration": raw["metadata"]["generation"], "readyReplicas": ready}
    bench.put(names.WORKER_POOLS, raw)


REGISTERED = Registered("", False, ClaimedAttributes({}))


@pytest.fixture
def bench() -> Bench:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    bench.put(names.WORKER_POOLS, pool("second"))
    return bench


@pytest.mark.parametrize("last", ["registration", "status"])
async def test_a_restart_is_done_when_the_site_has_accepted_it_and_the_adapter_has_registered_again(
    bench: Bench, last: str
) -> None:
    async def turns() -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    subject = bench.objects.view.directory.workers.get(NAMESPACE, "w")
    assert subject is not None
    register = ReceivedEvent(subject.user, "uid-w", REGISTERED, 1.0)
    somebody_else_s = ReceivedEvent("another", "uid-w", REGISTERED, 1.0)
    bench.objects.apply_event(register)  # an older one
    waiting = await begun(bench, "/compute/uid-w?action=restart&wait=true", action("restart"))
    if last == "status":
        bench.objects.apply_event(register)
    for ready, restarts in ((True, 0), (False, 1)):
        worker_is(bench, ready=ready, restarts=restarts)
        await turns()
        assert not waiting.done()
    worker_is(bench, restarts=1)
    await turns()
    if last == "registration":
        bench.objects.apply_event(somebody_else_s)
        await turns()
        assert not waiting.done()
        bench.objects.apply_event(register)
    assert (await waiting).status == 200


async def test_who_repeats_a_restart_that_was_done_hears_so_at_once(bench: Bench) -> None:
    await bench.ask("POST", "/compute/uid-w?action=restart", action("restart"), key="k")
    worker_is(bench, restarts=1)
    again = await bench.ask("POST", "/compute/uid-w?action=restart&wait=true", action("restart"), key="k")
    assert (again.status, bench.stored(names.WORKERS)["w"]["spec"]["restarts"]) == (200, 1)


async def test_a_stop_of_what_is_on_its_way_is_done_when_it_has_stopped(bench: Bench) -> None:
    worker_is(bench, ready=False, machine="Boot")
    waiting = await begun(bench, "/compute/uid-w?action=stop&wait=true", action("stop"))
    assert not waiting.done()
    worker_is(bench, ready=False, machine="Stopped")
    assert (await waiting).status == 200


@pytest.mark.parametrize(
    ("path", "scheme", "pools"),
    [
        ("/application/uid-beam", APPLICATION_ACTION_SCHEME, ["pool", "second"]),
        ("/component/uid-pool", COMPONENT_ACTION_SCHEME, ["pool"]),
    ],
)
async def test_the_stop_of_pools_is_done_when_none_of_their_workers_is_ready(
    bench: Bench, path: str, scheme: str, pools: list[str]
) -> None:
    for name in pools:
        pool_is(bench, name, 1)
    waiting = await begun(bench, f"{path}?action=stop&wait=true", action("stop", scheme))
    for name in pools:
        assert not waiting.done()
        pool_is(bench, name, 0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert (await waiting).status == 200
    pool_is(bench, pools[-1], 1)
    await bench.ask("POST", f"{path}?action=start", action("start", scheme))
    late = await bench.beside(wait_seconds=0.01).ask("POST", f"{path}?action=stop&wait=true", action("stop", scheme))
    assert (late.status, b"workers are still ready" in late.body) == (504, True)


@pytest.mark.parametrize("term", ["stop", "suspend", "restart"])
async def test_what_was_told_to_stop_takes_no_action_of_its_service(bench: Bench, term: str) -> None:
    paths = ("/compute/uid-w", "/amqplink/uid-w")
    solve = "http://cloud4e/beam/action#solve"
    assert all(solve in bench.entity(path).actions for path in paths)
    assert (await bench.ask("POST", f"/compute/uid-w?action={term}", action(term))).status == 200
    for path in paths:
        assert solve not in bench.entity(path).actions
        assert (await bench.ask("POST", f"{path}?action=solve&wait=false", SOLVE)).status == 400
    if term == "restart":
        worker_is(bench, restarts=1)
    else:
        assert (await bench.ask("POST", "/compute/uid-w?action=start", action("start"))).status == 200
    assert all(solve in bench.entity(path).actions for path in paths)


async def test_the_same_again_is_no_error_while_the_first_is_on_its_way(bench: Bench) -> None:
    for _ in range(2):
        assert (await bench.ask("POST", "/compute/uid-w?action=stop", action("stop"))).status == 200


async def test_a_restart_that_takes_too_long_is_504(bench: Bench) -> None:
    late = await bench.beside(names.WORKERS, wait_seconds=0.01).ask(
        "POST", "/compute/uid-w?action=restart&wait=true", action("restart")
    )
    assert (late.status, b"restart was requested" in late.body) == (504, True)
