# SPDX-License-Identifier: Apache-2.0
"""Sites that delete a machine when it is stopped: it is created anew only after a stop or restart."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from scripted_site import Bench, ScriptedSite, until, versions

from simyard.api.base import Json
from simyard.api.worker import Worker
from simyard_sites.base import (
    ErrorScope,
    Gone,
    InvalidSpecError,
    MachineState,
    Outcome,
    PowerAction,
    QuotaExhaustedError,
)


@dataclass
class EndingSite(ScriptedSite):
    """A site that deletes machines that are stopped or restarted, and can suspend none."""

    stop_ends: ClassVar[bool] = True

    async def act(self, ids: Sequence[str], action: PowerAction) -> AsyncIterator[Outcome]:
        for machine_id in ids:
            self.asked.append(f"{action} {machine_id}")
            if action is PowerAction.SUSPEND:
                yield Outcome(machine_id, error=InvalidSpecError("it cannot be suspended", scope=ErrorScope.ITEM))
                continue
            machine = self.machines.pop(machine_id)
            self.tell(Gone(machine_id, machine.name))  # before the answer, as it may be
            yield Outcome(machine_id)


def learn(bench: Bench, spec: Json, **status: Any) -> Worker:
    """Store a new state of the one Worker."""
    version = next(versions)
    metadata = {"name": "pool-0", "namespace": "ns", "uid": "pool-0---uid", "generation": version}
    body = {
        "metadata": {**metadata, "resourceVersion": str(version)},
        "spec": {"serviceRef": {"name": "service"}, "site": "site", **spec},
        "status": status,
    }
    worker = bench.registry.workers.learn(body)
    assert worker is not None
    return worker


def seen(bench: Bench) -> dict[str, Any]:
    return bench.statuses.seen.get("pool-0---uid", {})


async def test_a_stopped_worker_rests_without_a_machine_and_gets_one_again() -> None:
    bench = Bench(site=EndingSite())
    learn(bench, {})
    async with bench.running():
        await until(lambda: bench.site.machines)
        learn(bench, {"powerState": "Stopped"}, machineId="0", machineState="Running")
        await until(lambda: not bench.site.machines and seen(bench)["machine"].state is MachineState.STOPPED)
        assert not seen(bench).get("lost")
        learn(bench, {"powerState": "Running"}, machineId="0", machineState="Running")
        await until(lambda: bench.site.machines and seen(bench)["machine"].state is MachineState.RUNNING)
    assert bench.site.asked.count("create pool-0") == 2


async def test_after_a_restart_of_the_operator_a_stopped_worker_rests_on_and_gets_a_machine_again() -> None:
    bench = Bench(site=EndingSite())
    learn(bench, {"powerState": "Stopped"}, machineId="0", machineState="Stopped")
    async with bench.running():
        await until(lambda: "machine" in seen(bench))
        assert seen(bench)["machine"].state is MachineState.STOPPED
        assert "create pool-0" not in bench.site.asked
        learn(bench, {"powerState": "Running"}, machineId="0", machineState="Stopped")
        await until(lambda: bench.site.machines)


async def test_a_restart_makes_one_new_machine_and_a_machine_that_goes_by_itself_is_lost() -> None:
    bench = Bench(site=EndingSite())
    learn(bench, {})
    async with bench.running():
        await until(lambda: bench.site.machines)
        learn(bench, {"restarts": 1}, machineId="0", machineState="Running")
        await until(lambda: bench.site.asked.count("create pool-0") == 2 and len(bench.runner.machines) == 1)
        assert seen(bench)["restarts"] == 1
        assert not seen(bench).get("lost")
        [machine] = bench.site.machines.values()
        learn(bench, {"restarts": 1}, machineId=machine.id, machineState="Running", restarts=1)
        del bench.site.machines[machine.id]
        bench.site.tell(Gone(machine.id, machine.name))
        await until(lambda: seen(bench).get("lost"))
    assert bench.site.asked.count("create pool-0") == 2


async def test_a_worker_tells_what_its_site_refuses_to_do_with_its_machine() -> None:
    bench = Bench(site=EndingSite())
    learn(bench, {})
    async with bench.running():
        await until(lambda: bench.site.machines)
        learn(bench, {"powerState": "Suspended"}, machineId="0", machineState="Running")
        await until(lambda: seen(bench).get("waits"))
    assert seen(bench)["waits"] == "InvalidSpec: it cannot be suspended"


async def test_the_quota_of_one_namespace_holds_up_nobody_else_and_is_told() -> None:
    bench = Bench()
    bench.site.refusals = [(QuotaExhaustedError("4 pods", scope=ErrorScope.POOL), False)]
    bench.worker("pool-0")
    async with bench.running():
        await until(lambda: bench.statuses.seen.get("pool-0---uid", {}).get("waits") == "QuotaExhausted: 4 pods")
        assert bench.runner.health.exhausted_seconds == 0
        await until(lambda: bench.site.machines)
