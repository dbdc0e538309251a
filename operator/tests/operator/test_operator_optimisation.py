# SPDX-License-Identifier: Apache-2.0
"""Optimisations with a real API server, broker, S3 server and real adapters; the optimiser may die at any write."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from fleet_life import Fate, Life, WorldClient
from study_world import StudyWorld

from simyard.api import names
from simyard.api.base import Json
from simyard.api.names import ConditionType
from simyard.api.optimisation import OptimisedDesign
from simyard.api.study import Study
from simyard.files.generations import Generation, GenerationStore
from simyard.files.store import ObjectStore, StoreError
from simyard.optimiser.search import Search
from simyard.optimiser.server import Optimiser
from simyard_dev.controlplane import ControlPlane
from simyard_dev.file_store import FileStore
from simyard_dev.frontends import SIMYARD
from simyard_dev.ports import Ports
from simyard_dev.processes import Process

DESIGN: Json = {
    "axes": [{"name": "x", "start": "-1", "stop": 5, "unit": "mm"}],
    "objectives": [{"result": "square"}],
    "constraints": [{"result": "square", "atLeast": 1}],
    "algorithm": "DE",
    "population": 6,
    "generations": 4,
    "seed": 5,
}


class LivingStore(ObjectStore):
    """A store whose writes are side effects of a life."""

    life: Life

    async def create_object(self, key: str, content: bytes, metadata: Mapping[str, str] | None = None) -> bool:
        create = super().create_object
        return await self.life.effect(f"create {key}", lambda: create(key, content, metadata), StoreError("lost"))


@contextlib.asynccontextmanager
async def searching(studies: StudyWorld, life: Life) -> AsyncIterator[asyncio.Task[None]]:
    """An optimiser whose writes are side effects of a life."""
    client = await WorldClient.connect(studies.world.kubeconfig)
    client.namespace, client.life = studies.world.name, life
    async with client, LivingStore(studies.access) as store:
        store.life = life
        task = asyncio.create_task(Optimiser(client, store).run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])


async def optimise(studies: StudyWorld, name: str, parameters: Json | None = None, **changes: Any) -> Study:
    design = {"optimise": {**DESIGN, **changes}}
    return await studies.make(name, design, maxFailedTasks="100%", parameters=parameters or {})


async def read_generations(studies: StudyWorld, study: Study) -> list[Generation]:
    async with ObjectStore(studies.access) as store:
        return [item async for item in GenerationStore(store).read_all(studies.keys(study))]


async def test_an_optimisation_finds_the_best_point_and_each_evaluation_has_a_row(studies: StudyWorld) -> None:
    async with searching(studies, Life()):
        study = await optimise(studies, "found", population=10, generations=15)
        assert await studies.ended(study) == "Succeeded"
    status = studies.status(study)
    search = status.optimisation
    assert search is not None and search.best is not None
    assert (search.generations, search.evaluations, search.ended) == (15, 150, "BudgetSpent")
    rows = await studies.rows(study)
    assert [int(row["index"]) for row in rows] == list(range(150))
    squares = [float(row["result.square"]) for row in rows if row["result.square"]]
    feasible = [value for value in squares if value >= 1]
    assert search.feasible == len(feasible)
    assert float(search.best.value) == float(f"{min(feasible):.10g}")
    assert 1 <= min(feasible) < 1.05
    best = rows[search.best.index]
    assert [(item.name, item.value) for item in search.best.parameters] == [("x", best["parameters.x"])]
    assert status.failed == sum(1 for row in rows if float(row["parameters.x"]) < 0)


async def test_an_optimiser_that_dies_after_any_write_continues_with_the_same_points(studies: StudyWorld) -> None:
    async with searching(studies, Life()):
        undisturbed = await optimise(studies, "undisturbed")
        await studies.ended(undisturbed)
    study = await optimise(studies, "disturbed")
    deaths = 0
    while studies.status(study).finished_time is None:
        life = Life()
        life.arm(Fate.DIES, 1)
        async with searching(studies, life) as task:
            ended = asyncio.create_task(studies.ended(study))
            died = asyncio.create_task(life.dead.wait())
            await asyncio.wait([ended, died, task], return_when=asyncio.FIRST_COMPLETED)
            deaths += life.dead.is_set()
            for waiting in (ended, died):
                waiting.cancel()
    assert deaths >= 2 * DESIGN["generations"]
    generations = await read_generations(studies, study)
    assert generations == await read_generations(studies, undisturbed)
    assert len(generations) == DESIGN["generations"] + 1
    assert [row["index"] for row in await studies.rows(study)] == [str(index) for index in range(24)]


async def test_a_process_with_the_rights_of_an_optimiser_is_killed_and_the_next_one_continues(
    studies: StudyWorld, installed: ControlPlane, file_store: FileStore, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "optimiser.kubeconfig"
    installed.write_service_account_kubeconfig(kubeconfig, names.SYSTEM_NAMESPACE, names.OPTIMISER)
    ports = Ports(tmp_path)
    ports.reserve("metrics")
    command = [
        *(SIMYARD, "optimiser", f"--kubeconfig={kubeconfig}", f"--watch-namespace={studies.world.name}"),
        *(f"--files-directory={file_store.access}", f"--metrics-port={ports['metrics']}"),
    ]

    def count_generations() -> int:
        found = studies.status(study).optimisation
        return 0 if found is None else found.generations

    study = await optimise(studies, "killed", parameters={"milliseconds": 100}, generations=12)
    for killed_at in (3, 7):
        process = Process(tmp_path, "optimiser")
        process.start(command, dict(os.environ))
        try:
            await studies.world.until(lambda wanted=killed_at: count_generations() >= wanted, "it chooses points")
        finally:
            process.kill()
    async with searching(studies, Life()):
        assert await studies.ended(study) == "Succeeded"
    undisturbed = Search(OptimisedDesign.model_validate({**DESIGN, "generations": 12}))
    assert all(undisturbed.replay(generation) for generation in await read_generations(studies, study))
    assert [int(row["index"]) for row in await studies.rows(study)] == list(range(72))


async def test_two_optimisers_make_one_search(studies: StudyWorld) -> None:
    async with searching(studies, Life()), searching(studies, Life()):
        study = await optimise(studies, "twice")
        assert await studies.ended(study) == "Succeeded"
    assert len(await studies.rows(study)) == 24
    assert len(await read_generations(studies, study)) == 5


async def test_a_search_ends_early_when_a_point_is_good_enough(studies: StudyWorld) -> None:
    async with searching(studies, Life()):
        study = await optimise(studies, "early", goodEnough=24, generations=50)
        assert await studies.ended(study) == "StopRuleMet"
    status = studies.status(study)
    assert status.optimisation is not None and status.optimisation.ended == "GoodEnough"
    assert status.succeeded + status.failed < 300
    assert "fulfils spec.design.optimise.goodEnough" in status.conditions[0].message


async def test_without_an_optimiser_the_study_says_so(studies: StudyWorld) -> None:
    study = await optimise(studies, "waiting")
    await studies.world.until(
        lambda: studies.condition(study, ConditionType.COMPLETE) == ("False", "WaitingForOptimiser"), "it says so"
    )
