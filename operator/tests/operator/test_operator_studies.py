# SPDX-License-Identifier: Apache-2.0
"""Studies with a real API server, broker, S3 server and real adapters."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fleet_world import is_complete, living
from study_world import StudyWorld

from simyard.api import names
from simyard.api.names import ConditionType
from simyard.api.study import Study


async def test_a_grid_runs_on_two_workers_and_its_rows_are_in_the_store(studies: StudyWorld) -> None:
    study = await studies.make_counted("grid", 10, chunkTasks=2)
    assert await studies.ended(study) == "Succeeded"
    rows = await studies.rows(study)
    assert [(int(row["index"]), float(row["result.square"])) for row in rows] == [(i, i * i) for i in range(10)]
    assert len({row["worker"] for row in rows}) == 2
    status = studies.status(study)
    assert (status.tasks, status.succeeded, status.failed, status.chunk_tasks) == (10, 10, 0, 2)
    assert status.result_bytes > 0


async def test_the_first_tasks_decide_the_length_of_chunks(studies: StudyWorld) -> None:
    study = await studies.make_counted("tried", 200)
    assert await studies.ended(study) == "Succeeded"
    assert [int(row["index"]) for row in await studies.rows(study)] == list(range(200))
    length = studies.status(study).chunk_tasks
    assert length is not None and 1 < length <= 200 - 16


async def test_failed_tasks_are_counted_by_reason_and_above_the_limit_they_fail_the_study(studies: StudyWorld) -> None:
    rows = [[number] for number in (1, -1, 2, -2)]
    design = {"table": {"columns": ["x"], "rows": rows}}
    study = await studies.make("some", design, maxFailedTasks="50%", retriesPerTask=1)
    assert await studies.ended(study) == "Succeeded"
    status = studies.status(study)
    assert (status.succeeded, status.failed, status.failed_indexes) == (2, 2, [1, 3])
    assert [(item.reason, item.count, item.message) for item in status.failures] == [
        ("ActionFailed", 2, "x is negative")
    ]
    assert [row["attempts"] for row in await studies.rows(study)] == ["1", "2", "1", "2"]
    study = await studies.make("many", design, maxFailedTasks=1)
    assert await studies.ended(study, ConditionType.FAILED) == "TooManyFailedTasks"


async def test_a_suspended_study_begins_no_task_and_goes_on_later(studies: StudyWorld, tmp_path: Path) -> None:
    study = await studies.make_counted("suspended", 4, chunkTasks=1, suspend=True)
    await studies.world.until(
        lambda: studies.condition(study, ConditionType.COMPLETE) == ("False", "Suspended"), "it says so"
    )
    assert await studies.list_objects(study) == []
    await studies.change(study, suspend=False)
    assert await studies.ended(study) == "Succeeded"


async def test_a_cancelled_study_stops_its_tasks_and_keeps_their_rows(studies: StudyWorld, tmp_path: Path) -> None:
    ledger, parameters = tmp_path / "ledger", {"ledger": str(tmp_path / "ledger"), "gate": str(tmp_path / "gate")}
    study = await studies.make_counted("cancelled", 100, chunkTasks=5, parameters=parameters)
    await studies.world.until(ledger.exists, "a task runs")
    await studies.change(study, cancel=True)
    assert await studies.ended(study, ConditionType.FAILED) == "Cancelled"
    status = studies.status(study)
    assert status.succeeded == 0
    assert status.failed == len(await studies.rows(study)) <= 20


async def test_a_study_ends_at_its_deadline(studies: StudyWorld, tmp_path: Path) -> None:
    parameters = {"gate": str(tmp_path / "gate")}
    study = await studies.make_counted("late", 4, parameters=parameters, activeDeadlineSeconds=1)
    assert await studies.ended(study, ConditionType.FAILED) == "DeadlineExceeded"


async def test_a_result_that_fulfils_a_rule_ends_the_study(studies: StudyWorld) -> None:
    rules = [{"result": "square", "atLeast": 100}]
    study = await studies.make_counted("found", 10_000, chunkTasks=20, parallelism=1, stopWhen=rules)
    assert await studies.ended(study) == "StopRuleMet"
    status = studies.status(study)
    assert status.stopped_by in (19, 39)  # the largest of a chunk
    assert 0 < status.succeeded < 10_000


async def test_parallelism_limits_the_number_of_workers(studies: StudyWorld) -> None:
    study = await studies.make_counted("narrow", 10, chunkTasks=1, parallelism=1)
    await studies.ended(study)
    assert len({row["worker"] for row in await studies.rows(study)}) == 1


async def test_workers_that_are_reserved_for_sync_calls_get_no_tasks(studies: StudyWorld) -> None:
    await studies.world.change_pool(studies.pool, reservedForSync=1)
    study = await studies.make_counted("polite", 10, chunkTasks=1)
    await studies.ended(study)
    assert {row["worker"] for row in await studies.rows(study)} == {f"{studies.pool.metadata.name}-1"}


@pytest.mark.parametrize(
    ("change", "reason", "message"),
    [
        ({"action": "nothing"}, "UnknownAction", "it declares: square, once, ping"),
        ({"parameters": {"x": 1}}, "DesignInvalid", "has a fixed value in spec.parameters"),
        ({"target": {"kind": "WorkerPool", "name": "absent"}}, "TargetNotFound", "WorkerPool absent"),
    ],
)
async def test_a_study_that_cannot_run_says_why(
    studies: StudyWorld, change: dict[str, object], reason: str, message: str
) -> None:
    target = {"kind": "WorkerPool", "name": studies.pool.metadata.name}
    design = {"grid": {"axes": [{"name": "x", "values": [1]}]}}
    body = {"target": target, "action": "square", "design": design, **change}
    study = Study.model_validate(await studies.world.make(names.STUDIES, "wrong", body))
    assert await studies.ended(study, ConditionType.FAILED) == reason
    assert message in studies.status(study).conditions[0].message


async def test_without_a_file_store_a_large_study_says_who_can_help(quiet_studies: StudyWorld) -> None:
    async with living(quiet_studies.world) as operator:
        await quiet_studies.world.ready(operator)
        await quiet_studies.start(1)
        study = await quiet_studies.make_counted("homeless", 1_001)
        assert await quiet_studies.ended(study, ConditionType.FAILED) == "FileStoreMissing"
        assert "sets files.mode" in quiet_studies.status(study).conditions[0].message


async def test_without_a_file_store_a_small_study_keeps_its_rows_in_records(quiet_studies: StudyWorld) -> None:
    async with living(quiet_studies.world) as operator:
        await quiet_studies.world.ready(operator)
        await quiet_studies.start(2)
        study = await quiet_studies.make_counted("modest", 40, "once", chunkTasks=5)
        assert await quiet_studies.ended(study) == "Succeeded"
        rows = await quiet_studies.recorded_rows(study)
        assert [(int(row["index"]), float(row["result.square"])) for row in rows] == [(i, i * i) for i in range(40)]


async def test_a_study_that_began_without_a_file_store_goes_on_without_it(
    quiet_studies: StudyWorld, tmp_path: Path
) -> None:
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    parameters = {"ledger": str(ledger), "gate": str(gate)}
    async with living(quiet_studies.world) as operator:
        await quiet_studies.world.ready(operator)
        await quiet_studies.start(2)
        study = await quiet_studies.make_counted("modest", 12, "once", chunkTasks=2, parameters=parameters)
        await quiet_studies.world.until(
            lambda: ledger.exists() and len(ledger.read_text().splitlines()) == 2, "two tasks run"
        )
    gate.touch()
    async with living(quiet_studies.world, files=quiet_studies.access) as operator:
        await quiet_studies.world.ready(operator)
        assert await quiet_studies.ended(study) == "Succeeded"
    assert [int(row["index"]) for row in await quiet_studies.recorded_rows(study)] == list(range(12))
    assert len(ledger.read_text().splitlines()) == 12


async def test_the_rows_are_deleted_with_the_study(studies: StudyWorld) -> None:
    study = await studies.make_counted("short", 4, chunkTasks=1, ttlSecondsAfterFinished=0)
    await studies.world.until(lambda: studies.world.seen.studies.get(studies.world.name, "short") is None, "it is gone")
    async with asyncio.timeout(30):
        while await studies.list_objects(study):  # noqa: ASYNC110 - the store announces nothing
            await asyncio.sleep(0.1)


async def test_sync_calls_and_actions_are_answered_while_a_study_runs(studies: StudyWorld, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    study = await studies.make_counted("long", 2_000, chunkTasks=100)
    action = await studies.world.act(studies.pool, "square", x=3)
    await studies.world.until(lambda: is_complete(studies.world, action), "the action ends")
    assert not gate.exists()
    assert await studies.ended(study) == "Succeeded"
    assert studies.status(study).succeeded == 2_000


@pytest.mark.parametrize("action", ["square", "once"])
async def test_every_task_has_one_row_when_a_worker_is_lost(studies: StudyWorld, tmp_path: Path, action: str) -> None:
    ledger = tmp_path / "ledger"
    parameters = {"ledger": str(ledger), "gate": str(tmp_path / "gate")}
    study = await studies.make_counted("lossy", 8, action, chunkTasks=2, parameters=parameters, maxFailedTasks="100%")
    await studies.world.until(lambda: ledger.exists() and len(ledger.read_text().splitlines()) == 2, "two tasks run")
    victim = studies.world.workers(studies.pool)[0]
    await studies.world.client.delete(names.WORKERS, victim.metadata.name, studies.world.name)
    await studies.world.right(studies.pool, 2)
    (tmp_path / "gate").touch()
    await studies.ended(study)
    rows = await studies.rows(study)
    assert [int(row["index"]) for row in rows] == list(range(8))
    interrupted = [row for row in rows if row["reason"] == "Interrupted"]
    assert len(interrupted) == (0 if action == "square" else 2)
    if action == "once":
        assert len(ledger.read_text().splitlines()) <= 8


async def test_an_operator_that_starts_again_goes_on(quiet_studies: StudyWorld, tmp_path: Path) -> None:
    studies, ledger, gate = quiet_studies, tmp_path / "ledger", tmp_path / "gate"
    parameters = {"ledger": str(ledger), "gate": str(gate)}
    async with living(studies.world, files=studies.access) as operator:
        await studies.world.ready(operator)
        await studies.start()
        study = await studies.make_counted("resumed", 12, "once", chunkTasks=2, parameters=parameters)
        await studies.world.until(
            lambda: ledger.exists() and len(ledger.read_text().splitlines()) == 2, "two tasks run"
        )
    gate.touch()
    async with living(studies.world, files=studies.access) as operator:
        await studies.world.ready(operator)
        assert await studies.ended(study) == "Succeeded"
    assert [int(row["index"]) for row in await studies.rows(study)] == list(range(12))
    assert len(ledger.read_text().splitlines()) == 12


async def test_a_study_gives_its_pool_workers_while_it_runs(studies: StudyWorld, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    workers = {"min": 0, "max": 4}
    study = await studies.make_counted("wide", 8, chunkTasks=1, workers=workers, parameters={"gate": str(gate)})
    await studies.world.right(studies.pool, 4)
    gate.touch()
    assert await studies.ended(study) == "Succeeded"
    await studies.world.right(studies.pool, 2)
    pool = studies.world.seen.pools.get(studies.world.name, studies.pool.metadata.name)
    assert pool is not None and pool.spec.replicas == 2


async def test_a_study_ends_at_its_cost_and_keeps_its_rows(studies: StudyWorld) -> None:
    site = studies.world.workers(studies.pool)[0].spec.site
    cost = {"currency": "EUR", "workerHourMillis": 1_000_000_000}  # 278 EUR for each second
    await studies.world.client.patch(names.CLOUD_SITES, site, {"spec": {"cost": cost}})
    await studies.world.until(
        lambda: (found := studies.world.seen.sites.get("", site)) is not None and found.spec.cost.worker_hour_millis,
        "the site has a price",
    )
    parameters = {"milliseconds": 20}
    study = await studies.make_counted("dear", 1_000, chunkTasks=5, parameters=parameters, maxCost=300)
    assert await studies.ended(study, ConditionType.FAILED) == "MaxCostReached"
    status = studies.status(study)
    assert 0 < status.cost_millis <= 450_000
    assert status.succeeded == len(await studies.rows(study)) < 1_000


async def test_the_points_of_a_study_can_be_in_a_file(studies: StudyWorld) -> None:
    address = await studies.upload(b"x\n3\n4\n")
    study = await studies.make("filed", {"table": {"file": address}}, chunkTasks=1)
    assert await studies.ended(study) == "Succeeded"
    assert [float(row["result.square"]) for row in await studies.rows(study)] == [9, 16]
    missing = f"sha256:{'0' * 64}"
    study = await studies.make("absent", {"table": {"file": missing}})
    assert await studies.ended(study, ConditionType.FAILED) == "DesignInvalid"
    assert f"the namespace has no file {missing}" in studies.status(study).conditions[0].message
