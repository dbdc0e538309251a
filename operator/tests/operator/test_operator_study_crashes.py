# SPDX-License-Identifier: Apache-2.0
"""The operator, workers, machines and the file store die at random while studies run: every task has one row."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import os
import random
import secrets
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from operator_stack import Operator, Scene, Stack, condition, scene, wait_until

from simyard.api import names
from simyard.api.base import Json
from simyard_adapter.python_backend import load_class
from simyard_dev.file_store import FileStore

pytestmark = pytest.mark.timeout(600)  # a machine with two cores may be busy otherwise
CONNECTOR = Path(__file__).parent / "study_connector.py"
TASKS = 1_000
WORKERS = 5
KILLS = 14
SEED = int(os.environ.get("CRASH_SEED", "1"))


@pytest.fixture
def file_store(stack: Stack) -> Iterator[FileStore]:
    server = FileStore(stack.directory / f"studies-{secrets.token_hex(4)}")
    server.start()
    yield server
    server.stop(0)


@pytest.fixture
def leader(stack: Stack, file_store: FileStore) -> Iterator[Operator]:
    """The only operator; it has a file store."""
    stack.operator().stop()
    leader = stack.operator(f"studies-{secrets.token_hex(2)}", files_directory=str(file_store.access))
    leader.start()
    yield leader
    leader.stop()


@pytest.fixture
def world(stack: Stack, leader: Operator) -> Iterator[Scene]:
    with scene(stack) as made:
        interface = load_class("study_connector:Squares", CONNECTOR.parent).interface.to_json()
        files = [{"path": CONNECTOR.name, "content": CONNECTOR.read_text()}]
        connector = {"python": {"class": "study_connector:Squares"}, "files": files}
        spec = {"interface": interface, "connector": connector}
        stack.make(names.SIMULATION_SERVICES, made.namespace, "squares", spec)
        made.make_pool(WORKERS, serviceRef={"name": "squares"})
        made.available(WORKERS)
        yield made


def make_study(world: Scene, action: str, ledger: Path) -> Json:
    axes = [{"name": "x", "start": 0, "stop": TASKS - 1, "step": 1}]
    spec = {
        "target": {"kind": "WorkerPool", "name": "pool"},
        "action": action,
        "parameters": {"ledger": str(ledger), "milliseconds": 10},
        "design": {"grid": {"axes": axes}},
        "chunkTasks": 10,
        "maxFailedTasks": "100%",
    }
    return world.stack.make(names.STUDIES, world.namespace, action, spec)


def read_rows(store: FileStore, study: Json) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    for path in sorted(store.objects.glob(f"*/*/studies/{study['metadata']['uid']}/parts/*")):
        rows += csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode()))
    return rows


def count_runs(ledger: Path) -> Counter[int]:
    return Counter(int(float(line)) for line in ledger.read_text().splitlines()) if ledger.exists() else Counter()


def test_every_task_has_one_row_whatever_dies(
    world: Scene, leader: Operator, file_store: FileStore, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    ledgers = {action: tmp_path / action for action in ("square", "once")}
    studies = {action: make_study(world, action, ledger) for action, ledger in ledgers.items()}

    def kill_worker() -> None:
        if adapters := world.adapters():
            os.kill(chance.choice(adapters).pid, signal.SIGKILL)

    def kill_operator() -> None:
        leader.kill()
        leader.start(ready=False)

    def kill_store() -> None:
        file_store.stop(0)
        file_store.start()

    def lose_machine() -> None:
        asyncio.run(world.lose_a_machine())

    fates: list[Callable[[], None]] = [kill_worker, kill_worker, kill_operator, kill_store, lose_machine]
    for number in range(KILLS):
        wanted = (number + 1) * 2 * TASKS // (KILLS + 2)
        wait_until(lambda wanted=wanted: sum(count_runs(it).total() for it in ledgers.values()) >= wanted)
        chance.choice(fates)()

    def is_complete(name: str) -> bool:
        found = world.stack.get(names.STUDIES, world.namespace, name)
        return found is not None and condition(found, "Complete")["status"] == "True"

    for action, study in studies.items():
        wait_until(lambda action=action: is_complete(action), f"{action} is complete", 240)
        rows = read_rows(file_store, study)
        assert [int(row["index"]) for row in rows] == list(range(TASKS))
        done = count_runs(ledgers[action])
        for row in rows:
            index = int(row["index"])
            if row["reason"]:
                assert (action, row["reason"]) == ("once", "Interrupted")
            else:
                assert float(row["result.square"]) == index**2
                assert done[index] >= 1
        status = world.stack.get(names.STUDIES, world.namespace, action)["status"]
        assert status["succeeded"] == sum(not row["reason"] for row in rows)
        assert status.get("failed", 0) == sum(bool(row["reason"]) for row in rows)
    assert max(count_runs(ledgers["once"]).values()) == 1
