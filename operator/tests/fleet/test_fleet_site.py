# SPDX-License-Identifier: Apache-2.0
"""The runner of one site against a site that behaves badly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from scripted_site import Bench, ScriptedSite, owner, spec, until, versions

from simyard.api.worker import Worker
from simyard.plan.breaker import OPENING_FAILURES
from simyard.plan.tuner import START
from simyard_sites.base import (
    CapacityExhaustedError,
    Changed,
    ConflictError,
    Gone,
    InternalError,
    InvalidSpecError,
    MachineRequest,
    MachineState,
    Outcome,
    QuotaExhaustedError,
    SiteError,
    Snapshot,
    ThrottledError,
    UnavailableError,
    UnknownOutcomeError,
)


class LateSite(ScriptedSite):
    """A site whose answers to creations come late and show the first state of the machines: pending."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()

    async def create(self, requests: Sequence[MachineRequest]) -> AsyncIterator[Outcome]:
        outcomes = [outcome async for outcome in super().create(requests)]
        await self.answers.wait()
        for outcome in outcomes:
            assert outcome.machine is not None
            yield replace(outcome, machine=replace(outcome.machine, state=MachineState.PENDING))


class LateDeletes(ScriptedSite):
    """A site whose answers to deletions come late and show a former state of the machines: terminating."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()
        self.answered = asyncio.Event()

    async def delete(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        before = dict(self.machines)
        outcomes = [outcome async for outcome in super().delete(ids)]
        await self.answers.wait()
        for outcome in outcomes:
            yield replace(outcome, machine=replace(before[outcome.key], state=MachineState.TERMINATING))
        self.answered.set()


async def test_a_lost_answer_to_a_create_leaves_one_machine() -> None:
    bench = Bench()
    bench.site.refusals = [(UnknownOutcomeError("lost"), True), (UnknownOutcomeError("lost"), False)]
    bench.worker("pool-0")
    bench.worker("pool-1")
    async with bench.running():
        await until(lambda: len(bench.site.machines) == 2 and len(bench.runner.machines) == 2)
    assert bench.site.asked.count("create pool-0") == 1, "it was looked for before it was asked for again"
    assert bench.site.asked.count("create pool-1") == 2
    assert "list" in bench.site.asked


async def test_a_machine_is_not_deleted_while_nobody_can_say_that_its_worker_is_gone() -> None:
    bench = Bench()
    bench.client.down = True
    bench.site.add("pool-0-unknown", owner("pool-0"))
    async with bench.running():
        await until(lambda: bench.client.asked >= 2)
        assert bench.site.machines
        bench.client.down = False
        await until(lambda: not bench.site.machines)
    assert bench.orphans == ["pool-0-unknown"]


async def test_the_machine_of_a_worker_that_was_seen_to_be_deleted_goes_without_a_question() -> None:
    bench = Bench()
    worker = bench.worker()
    async with bench.running():
        await until(lambda: len(bench.runner.machines) == 1)
        bench.registry.workers.forget(worker)
        await until(lambda: not bench.site.machines)
    assert (bench.client.asked, bench.orphans) == (0, [])


async def test_of_two_machines_of_one_worker_one_stays() -> None:
    bench = Bench()
    bench.worker()
    bench.site.add("pool-0-a", owner("pool-0"), MachineState.FAILED)
    bench.site.add("pool-0-b", owner("pool-0"))
    async with bench.running():
        await until(lambda: len(bench.site.machines) == 1)
    assert [machine.name for machine in bench.site.machines.values()] == ["pool-0-b"]


async def test_an_answer_that_comes_after_the_events_does_not_undo_what_they_told() -> None:
    site = LateSite()
    bench = Bench(site)
    uid = bench.worker().metadata.uid
    async with bench.running():
        await until(lambda: len(bench.runner.machines) == 1)
        site.answers.set()
        bench.worker("pool-1")
        await until(lambda: len(bench.runner.machines) == 2)
    assert bench.statuses.seen[uid]["machine"].state is MachineState.RUNNING


async def test_a_machine_that_is_gone_does_not_come_back_with_a_late_answer() -> None:
    site = LateDeletes()
    bench = Bench(site)
    worker = bench.worker()
    async with bench.running():
        await until(lambda: len(bench.runner.machines) == 1)
        bench.registry.workers.forget(worker)
        await until(lambda: len(bench.runner.machines) == 0)
        site.answers.set()
        await site.answered.wait()
        assert len(bench.runner.machines) == 0


async def test_a_request_that_can_never_work_is_told_once_and_not_repeated() -> None:
    bench = Bench()
    bench.site.refusals = [(InvalidSpecError("no such image"), False)]
    uid = bench.worker().metadata.uid
    async with bench.running():
        await until(lambda: bench.statuses.seen.get(uid, {}).get("refusal"))
    assert bench.statuses.seen[uid]["refusal"] == "InvalidSpec: no such image"
    assert bench.site.asked == ["create pool-0"]


async def test_a_full_site_is_asked_again_after_a_pause() -> None:
    bench = Bench()
    bench.site.refusals = [(CapacityExhaustedError("full"), False)]
    bench.worker()
    async with bench.running():
        await until(lambda: bench.site.machines)
        await until(lambda: bench.runner.health.exhausted_seconds == 0)
    assert bench.site.asked == ["create pool-0", "create pool-0"]


async def test_a_site_that_was_full_shows_that_more_fits_by_what_it_makes_later() -> None:
    bench = Bench()
    bench.worker("pool-0")
    async with bench.running():
        await until(lambda: len(bench.runner.machines) == 1)
        assert bench.runner.health.full_at is None
        bench.site.refusals = [(QuotaExhaustedError("limit of 1 reached"), False)] * 10_000
        bench.worker("pool-1")
        await until(lambda: bench.runner.health.full_at == 1)
        bench.site.refusals = []
        await until(lambda: len(bench.runner.machines) == 2)
        await until(lambda: bench.runner.health.full_at is None)


async def test_a_site_that_says_that_more_fits_is_not_full_any_more() -> None:
    bench = Bench()
    bench.site.capacity = 1
    bench.site.refusals = [(QuotaExhaustedError("limit of 1 reached", retry_after_seconds=3600), False)]
    bench.worker()
    async with bench.running():
        await until(lambda: bench.runner.health.full_at is not None)
        await until(lambda: bench.runner.health.capacity == 1)
        bench.site.capacity = 2
        bench.runner.health.record_failure(UnavailableError("have it probed"))
        await until(lambda: bench.runner.health.capacity == 2)
        assert (bench.runner.health.full_at, bench.runner.health.exhausted_seconds) == (None, 0)


async def test_no_machine_is_made_before_its_queue() -> None:
    bench = Bench()
    bench.broker.down = True
    bench.worker()
    async with bench.running():
        await until(lambda: bench.runner.complete)
        bench.broker.down = False
        assert bench.site.asked == []
        await until(lambda: bench.site.machines)


async def test_a_machine_that_a_resync_misses_is_looked_for_before_its_worker_counts_as_lost() -> None:
    bench = Bench()
    there, gone = bench.worker("pool-0"), bench.worker("pool-1")
    async with bench.running():
        await until(lambda: len(bench.runner.machines) == 2)
        (lost,) = [machine for machine in bench.site.machines.values() if machine.owner.worker == "pool-1"]
        del bench.site.machines[lost.id]
        bench.site.tell(Snapshot([]))
        await until(lambda: bench.statuses.seen.get(gone.metadata.uid, {}).get("lost"))
    assert not bench.statuses.seen[there.metadata.uid].get("lost")
    assert "create pool-1" not in bench.site.asked[2:], "one uid is one machine"


async def test_a_worker_whose_machine_went_while_nobody_looked_is_lost() -> None:
    bench = Bench()
    uid = bench.worker(machineId="7").metadata.uid
    async with bench.running():
        await until(lambda: bench.statuses.seen.get(uid, {}).get("lost"))
    assert bench.site.asked == []


async def test_machine_id_0_is_a_machine() -> None:
    bench = Bench()
    uid = bench.worker(machineId="0").metadata.uid
    bench.site.add("pool-0-x", owner("pool-0"))
    async with bench.running():
        await until(lambda: bench.statuses.seen.get(uid, {}).get("machine"))
    assert bench.site.asked == []


async def test_a_deletion_whose_event_is_lost_is_noticed() -> None:
    bench = Bench()
    worker = bench.worker()
    async with bench.running():
        await until(lambda: len(bench.runner.machines) == 1)
        bench.site.mute = True
        bench.registry.workers.forget(worker)
        await until(lambda: len(bench.runner.machines) == 0)
    assert bench.runner.machines.count_of_pool("ns", "") == 0


async def test_nothing_is_done_while_the_site_s_events_are_broken() -> None:
    bench = Bench()
    async with bench.running():
        await until(lambda: bench.runner.complete)
        bench.site.tell(UnknownOutcomeError("stream"))
        await until(lambda: not bench.runner.complete)
        bench.worker()
        assert bench.site.asked == []
        await until(lambda: bench.site.machines)
        assert bench.runner.complete


def turn(bench: Bench, worker: Worker, power_state: str) -> None:
    """Let the user ask for another power state."""
    metadata = {**worker.metadata.model_dump(by_alias=True), "generation": 2, "resourceVersion": str(next(versions))}
    bench.registry.workers.learn({"metadata": metadata, "spec": {**worker.spec.to_json(), "powerState": power_state}})


async def test_a_machine_follows_the_worker_s_power_state() -> None:
    bench = Bench()
    worker = bench.worker()
    async with bench.running():
        await until(lambda: len(bench.runner.machines) == 1)
        turn(bench, worker, "Stopped")
        await until(lambda: "stop 0" in bench.site.asked)


@pytest.mark.parametrize("error", [InternalError("406 Not Acceptable"), ConflictError("no virt-handler")])
async def test_a_worker_tells_why_its_machine_is_not_suspended_until_it_is(
    error: SiteError, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    worker = bench.worker()
    told = f"{error.reason}: {error}"
    bench.site.act_refusals = [error]
    async with bench.running():
        await until(lambda: len(bench.runner.machines) == 1)
        turn(bench, worker, "Suspended")
        await until(lambda: bench.statuses.seen[worker.metadata.uid].get("waits") == told)
        await until(lambda: bench.statuses.seen[worker.metadata.uid].get("waits") == "")
    assert f"suspend of 0: {told}" in caplog.text


async def test_a_machine_is_restarted_once_for_each_restart_that_is_asked_for() -> None:
    bench = Bench()
    worker = bench.worker()
    uid = worker.metadata.uid

    def ask(restarts: int) -> None:
        metadata = {**worker.metadata.model_dump(by_alias=True), "generation": restarts + 1}
        metadata["resourceVersion"] = str(next(versions))
        bench.registry.workers.learn({"metadata": metadata, "spec": {**worker.spec.to_json(), "restarts": restarts}})

    async with bench.running():
        await until(lambda: len(bench.runner.machines) == 1)
        for restarts in (1, 2):
            ask(restarts)
            await until(lambda: bench.statuses.seen[uid].get("restarts") == restarts)  # noqa: B023
            bench.site.tell(Changed(bench.site.machines["0"]))
            bench.worker(f"other-{restarts}")
            await until(lambda: len(bench.runner.machines) == 1 + restarts)  # noqa: B023
            assert bench.site.asked.count("restart 0") == restarts


async def test_a_broken_site_is_asked_once_after_each_probe_and_goes_on_where_it_was() -> None:
    bench = Bench()
    leaves = bench.worker("other-0")
    async with bench.running():
        await until(lambda: len(bench.runner.machines) == 1)
        bench.site.broken = UnavailableError("down")
        for number in range(50):
            bench.worker(f"pool-{number}")
        await until(lambda: bench.runner.observe().breaker.state == "Open")
        bench.registry.workers.forget(leaves)
        probes, asked = bench.site.calls["probe"], bench.site.calls.total()
        assert asked - probes <= 1 + OPENING_FAILURES + START.calls
        await until(lambda: bench.site.calls["probe"] >= probes + 3)
        seen = bench.runner.observe().breaker
        assert (seen.state in ("Open", "HalfOpen"), str(seen.cause)) == (True, "down")
        assert bench.site.calls.total() - asked <= 2 * (bench.site.calls["probe"] - probes)
        bench.site.broken = None
        await until(lambda: len(bench.site.machines) == 50)
        assert bench.runner.observe().breaker.state == "Closed"
    assert all(machine.owner.worker != "other-0" for machine in bench.site.machines.values())


async def test_what_a_site_refuses_as_too_much_is_asked_again_and_shown() -> None:
    bench = Bench()
    bench.site.refusals = [(ThrottledError("slower", retry_after_seconds=0.01), False)] * 3
    for number in range(6):
        bench.worker(f"pool-{number}")
    async with bench.running():
        await until(lambda: len(bench.site.machines) == 6)
        (seen,) = bench.runner.observe().calls
    assert (seen.call, seen.throttled, len(bench.site.asked)) == ("Create", 3, 9)
    assert bench.runner.observe().breaker.state == "Closed"


async def test_machines_that_a_resync_misses_are_looked_for_together() -> None:
    bench = Bench()
    for number in range(30):
        bench.worker(f"pool-{number}")
    async with bench.running():
        await until(lambda: len(bench.runner.machines) == 30)
        bench.site.tell(Snapshot([]))
        await until(lambda: bench.site.calls["get"])
        await until(lambda: bench.runner.observe().calls[-1].idle)
        assert len(bench.runner.machines) == 30
    assert bench.site.calls["get"] <= 10
    assert not any(seen.get("lost") for seen in bench.statuses.seen.values())


async def test_a_machine_without_a_worker_stays_for_the_time_of_grace() -> None:
    bench = Bench(grace_seconds=3600)
    bench.site.add("pool-0-unknown", owner("pool-0"))
    async with bench.running():
        await until(lambda: bench.client.asked)
        bench.worker("pool-1")
        await until(lambda: len(bench.site.machines) == 2)
        assert bench.orphans == []
        bench.runner.adjust(spec(0))
        await until(lambda: len(bench.site.machines) == 1)
    assert bench.orphans == ["pool-0-unknown"]


async def test_a_worker_that_appears_within_the_time_of_grace_keeps_its_machine() -> None:
    bench = Bench(grace_seconds=3600)
    bench.site.add("pool-0-x", owner("pool-0"))
    async with bench.running():
        await until(lambda: bench.client.asked)
        uid = bench.worker("pool-0", machineId="0").metadata.uid
        await until(lambda: bench.statuses.seen.get(uid, {}).get("machine"))
        bench.runner.adjust(spec(0))
        bench.worker("pool-1")
        await until(lambda: len(bench.site.machines) == 2)
    assert bench.orphans == []


async def test_a_machine_that_comes_back_after_its_worker_was_replaced_is_an_orphan() -> None:
    bench = Bench()
    worker = bench.worker()
    async with bench.running():
        await until(lambda: len(bench.runner.machines) == 1)
        (machine,) = bench.site.machines.values()
        bench.site.machines.clear()
        bench.site.tell(Gone(machine.id, machine.name))
        await until(lambda: bench.statuses.seen[worker.metadata.uid].get("lost"))
        bench.registry.workers.forget(worker)
        bench.site.machines[machine.id] = machine
        bench.site.tell(Changed(machine))
        await until(lambda: not bench.site.machines)
    assert bench.orphans == [machine.name]
