# SPDX-License-Identifier: Apache-2.0
"""ServiceActions with the real parts: each runs once, whatever dies meanwhile."""

import os
import signal
from pathlib import Path

import pytest
from operator_stack import Operator, Scene, Stack, condition, wait_until

from simyard.api import names
from simyard_dev.local_broker import LocalBroker

pytestmark = pytest.mark.xdist_group("operator")


def runs(ledger: Path) -> int:
    return len(ledger.read_text().splitlines()) if ledger.exists() else 0


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Where each run of an action leaves a line."""
    return tmp_path / "ledger"


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The file that actions wait for."""
    return tmp_path / "gate"


def test_an_action_runs_on_a_free_worker_and_its_result_is_kept(world: Scene, ledger: Path) -> None:
    world.make_pool(1)
    world.act("run", "early", parameters={"ledger": str(ledger)})
    done = world.finished("early")
    assert condition(done, "Complete")["reason"] == "Succeeded"
    assert done["status"]["worker"] == "pool-0"
    assert done["status"]["result"]["pid"] in {identity.pid for identity in world.adapters()}
    assert done["status"]["attempts"] == 1
    assert done["status"]["percent"] == 100
    assert runs(ledger) == 1


def test_waiting_is_visible_and_each_worker_runs_one_at_a_time(world: Scene, ledger: Path, gate: Path) -> None:
    world.make_pool(2)
    world.available(2)
    for index in range(4):
        world.act("run", f"run-{index}", parameters={"ledger": str(ledger), "until": str(gate)})
    wait_until(lambda: runs(ledger) == 2)
    waiting = wait_until(lambda: [i for i in range(4) if reason(world, f"run-{i}") == "WaitingForWorker"])
    wait_until(lambda: sum(reason(world, f"run-{i}") == "WaitingForWorker" for i in range(4)) == 2)
    assert len(waiting) <= 2
    gate.touch()
    for index in range(4):
        assert condition(world.finished(f"run-{index}"), "Complete")["status"] == "True"
    assert runs(ledger) == 4


def test_what_cannot_run_fails_with_the_reason(world: Scene) -> None:
    world.make_pool(1)
    world.available(1)
    world.act("run", "unknown-parameter", parameters={"ledger": "x", "colour": "red"})
    world.act("nothing", "unknown-action")
    world.act("refuse", "refused")
    world.act("run", "no-target", target="absent", parameters={"ledger": "x"})
    failures = {name: world.finished(name)["status"]["failure"] for name in (
        "unknown-parameter", "unknown-action", "refused", "no-target")}  # fmt: skip
    assert {name: failure["reason"] for name, failure in failures.items()} == {
        "unknown-parameter": "InvalidParameters",
        "unknown-action": "UnknownAction",
        "refused": "ActionFailed",
        "no-target": "TargetNotFound",
    }
    assert "spec.parameters.colour" in failures["unknown-parameter"]["message"]
    assert failures["refused"]["message"] == "*ERROR in e_c3d: nonpositive jacobian"


def test_what_waits_ends_with_its_pool(world: Scene, ledger: Path, gate: Path) -> None:
    world.make_pool(1)
    world.act("run", "running", parameters={"ledger": str(ledger), "until": str(gate)})
    wait_until(lambda: runs(ledger) == 1)
    world.act("run", "waiting", parameters={"ledger": str(ledger), "until": str(gate)})
    wait_until(lambda: reason(world, "waiting") == "WaitingForWorker")
    world.stack.delete(names.WORKER_POOLS, world.namespace, "pool")
    assert world.finished("waiting")["status"]["failure"]["reason"] == "TargetNotFound"
    assert world.finished("running")["status"]["failure"]["reason"] in ("Interrupted", "WorkerLost")


def test_an_action_that_is_deleted_while_it_runs_makes_room_for_the_next(
    world: Scene, ledger: Path, gate: Path
) -> None:
    world.make_pool(1)
    world.act("run", "deleted", parameters={"ledger": str(ledger), "until": str(gate)})
    wait_until(lambda: runs(ledger) == 1)
    world.act("run", "next", parameters={"ledger": str(ledger)})
    world.stack.delete(names.SERVICE_ACTIONS, world.namespace, "deleted")
    assert condition(world.finished("next"), "Complete")["status"] == "True"


def test_an_action_is_cancelled_while_it_runs(world: Scene, ledger: Path, gate: Path) -> None:
    world.make_pool(1)
    world.act("run", "long", parameters={"ledger": str(ledger), "until": str(gate)})
    wait_until(lambda: runs(ledger) == 1)
    world.stack.patch(names.SERVICE_ACTIONS, world.namespace, "long", {"spec": {"cancel": True}})
    assert world.finished("long")["status"]["failure"]["reason"] == "Cancelled"


def test_a_finished_action_is_deleted_when_its_time_has_come(world: Scene, ledger: Path) -> None:
    world.make_pool(1)
    world.act("run", "short-lived", parameters={"ledger": str(ledger)}, ttlSecondsAfterFinished=0)
    wait_until(lambda: world.stack.get(names.SERVICE_ACTIONS, world.namespace, "short-lived") is None)
    assert runs(ledger) == 1


def test_a_worker_that_runs_an_action_finishes_it_before_it_is_ended(world: Scene, ledger: Path, gate: Path) -> None:
    world.make_pool(2, scaleIn={"drainSeconds": 60})
    world.available(2)
    world.act("run", "last", parameters={"ledger": str(ledger), "until": str(gate)})
    wait_until(lambda: runs(ledger) == 1)
    busy = world.action("last")["status"]["worker"]
    world.stack.patch(names.WORKER_POOLS, world.namespace, "pool", {"spec": {"replicas": 0}})
    wait_until(lambda: [worker["metadata"]["name"] for worker in world.workers()] == [busy])
    gate.touch()
    assert condition(world.finished("last"), "Complete")["status"] == "True"
    wait_until(lambda: not world.workers() and not world.adapters())


def test_an_action_survives_the_operator(world: Scene, operator: Operator, ledger: Path, gate: Path) -> None:
    world.make_pool(1)
    world.act("run", "action", parameters={"ledger": str(ledger), "until": str(gate)})
    wait_until(lambda: runs(ledger) == 1)
    operator.kill()
    gate.touch()
    operator.start()
    assert condition(world.finished("action"), "Complete")["status"] == "True"
    assert runs(ledger) == 1


def test_an_action_survives_the_broker(world: Scene, stack: Stack, ledger: Path, gate: Path) -> None:
    if not isinstance(stack.broker, LocalBroker):
        pytest.skip("this broker is not ours to kill")
    world.make_pool(1)
    world.act("run", "action", parameters={"ledger": str(ledger), "until": str(gate)})
    wait_until(lambda: runs(ledger) == 1)
    stack.broker.stop(grace_seconds=0)
    gate.touch()
    stack.broker.start()
    assert condition(world.finished("action"), "Complete")["status"] == "True"
    assert runs(ledger) == 1


def test_an_action_whose_worker_is_lost_fails_or_runs_elsewhere(world: Scene, ledger: Path, gate: Path) -> None:
    world.make_pool(2)
    world.available(2)
    world.act("run", "once", parameters={"ledger": str(ledger), "until": str(gate)})
    world.act("rerun", "again", parameters={"ledger": str(ledger), "until": str(gate)})
    wait_until(lambda: runs(ledger) == 2)
    for worker in ("pool-0", "pool-1"):
        world.stack.delete(names.WORKERS, world.namespace, worker)
    wait_until(lambda: runs(ledger) == 3)
    gate.touch()
    assert world.finished("once")["status"]["failure"]["reason"] in ("Interrupted", "WorkerLost")
    again = world.finished("again")
    assert condition(again, "Complete")["status"] == "True"
    assert again["status"]["attempts"] == 2
    assert runs(ledger) == 3


def test_an_action_that_a_crash_of_its_adapter_interrupts_fails_or_runs_again(
    world: Scene, ledger: Path, gate: Path
) -> None:
    world.make_pool(2)
    world.available(2)
    world.act("run", "once", parameters={"ledger": str(ledger), "until": str(gate)})
    world.act("rerun", "again", parameters={"ledger": str(ledger), "until": str(gate)})
    wait_until(lambda: runs(ledger) == 2)
    for identity in world.adapters():
        os.kill(identity.pid, signal.SIGKILL)
    gate.touch()
    assert world.finished("once")["status"]["failure"]["reason"] == "Interrupted"
    assert condition(world.finished("again"), "Complete")["status"] == "True"
    assert runs(ledger) == 3


def reason(world: Scene, name: str) -> str:
    return str(condition(world.action(name), "Complete")["reason"])
