# SPDX-License-Identifier: Apache-2.0
"""Continues the searches of all studies whose tasks have ended.

The store is the truth. A generation is created there before the status of the study mentions it, and each generation
has the results by which it was chosen. If a process ends at any point, the next one replays the generations in the
store and continues. Several processes may work at the same time: the first generation with a number wins, and the
others replay it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NoReturn, ParamSpec, TypeVar

from simyard.api.names import NAMESPACES
from simyard.api.study import Study
from simyard.files.generations import GenerationStore
from simyard.files.keys import StudyKeys
from simyard.files.store import MAX_TABLE_BYTES, ObjectStore, StoreError
from simyard.fleet.status_writes import write_status
from simyard.fleet.work_queue import KeyQueue
from simyard.guest.reading import RefusedError
from simyard.guest.rows import TaskRow, read_rows
from simyard.kube.cache import Cache
from simyard.optimiser.search import Search
from simyard.plan.studies.evaluations import list_results
from simyard.plan.studies.layout import ChunkSet, Layout
from simyard.plan.studies.study import is_finished
from simyard_sites.kubernetes.client import KubeClient

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

STORE_RETRY_SECONDS = 3.0
CONFLICT_RETRY_SECONDS = 0.2


class Optimisations:
    """The reconciler of the searches of all studies.

    ``studies`` has the index ``uid``.
    """

    def __init__(self, client: KubeClient, studies: Cache[Study], store: ObjectStore) -> None:
        self._client = client
        self._studies = studies
        self._store = store
        self._generations = GenerationStore(store)
        self._queue = KeyQueue("optimisation", self._reconcile)
        self._searches: dict[str, tuple[StudyKeys, Search]] = {}
        self._thread = ThreadPoolExecutor(1, "search")  # algorithms compute for long, and must not block the loop

    async def run(self) -> NoReturn:
        """Reconcile until cancelled."""
        await self._queue.run()
        raise AssertionError("the queue does not end")

    def study_changed(self, old: Study | None, new: Study | None) -> None:
        """Continue the search of a changed Study."""
        study = new or old
        if study is not None and study.spec.design.optimise is not None:
            self._queue.add(study.metadata.uid)

    async def _reconcile(self, uid: str) -> float | None:
        study = next(iter(self._studies.list_by("uid", uid)), None)
        if study is None or is_finished(study):
            self._searches.pop(uid, None)
            self._queue.forget(uid)
            return None
        try:
            return await self._continue(study)
        except StoreError as error:
            log.warning("the search of the study %s waits for the file store: %s", study.metadata.name, error)
            return STORE_RETRY_SECONDS

    async def _continue(self, study: Study) -> float | None:
        uid = study.metadata.uid
        keys, search = self._searches.get(uid) or await self._load(study)
        if self._is_due(study, search):
            self._searches.pop(uid, None)  # until the next generation is stored, the search is ahead of the store
            rows = await self._read_rows(study, keys, search)
            generation = await self._compute(search.choose, rows)
            number = search.chosen if not generation.points else search.chosen - 1
            if not await self._generations.create(keys, number, generation):
                return 0.0  # another process was faster: replay its generation
            log.info("study %s: generation %d", study.metadata.name, number)
        self._searches[uid] = keys, search
        status = study.status.model_copy(update={"optimisation": search.status})
        if not await write_status(self._client, self._studies, study.metadata, study.status, status, guarded=True):
            return CONFLICT_RETRY_SECONDS
        return None

    def _is_due(self, study: Study, search: Search) -> bool:
        """Return whether the next generation can be chosen."""
        if search.status.ended is not None:
            return False
        finished = ChunkSet.decode(study.status.finished_chunks)
        return not search.chosen or search.generations.is_ready(search.chosen - 1, _lay_out(study, search), finished)

    async def _load(self, study: Study) -> tuple[StudyKeys, Search]:
        """Return the search as the store has it."""
        design = study.spec.design.optimise
        assert design is not None, "only studies with this design are reconciled"
        raw = await self._client.get(NAMESPACES, study.metadata.namespace, "")
        keys = StudyKeys(str(raw["metadata"]["uid"]), study.metadata.uid)
        search = await self._compute(Search, design)
        async for generation in self._generations.read_all(keys):
            if not await self._compute(search.replay, generation):
                log.warning(
                    "study %s: the algorithm now chooses other points than those in the store, as after an upgrade;"
                    " the search continues with those in the store",
                    study.metadata.name,
                )
        return keys, search

    async def _read_rows(self, study: Study, keys: StudyKeys, search: Search) -> dict[int, TaskRow | None]:
        """Return the rows of all tasks that have ended and that the search has not received."""
        layout, finished = _lay_out(study, search), ChunkSet.decode(study.status.finished_chunks)
        waiting = sorted({index // search.generations.size for index in search.missing})
        chunks = [
            chunk
            for number in waiting
            for chunk in layout.list_chunks(number)
            if chunk in finished and layout.get_tasks(chunk).start in search.missing
        ]
        parts = await asyncio.gather(*(self._read_part(study, keys, chunk) for chunk in chunks))
        rows: dict[int, TaskRow | None] = {}
        for chunk, part in zip(chunks, parts, strict=True):
            rows |= {index: part.get(index) for index in layout.get_tasks(chunk)}
        return rows

    async def _read_part(self, study: Study, keys: StudyKeys, chunk: int) -> dict[int, TaskRow]:
        design = study.spec.design.optimise
        assert design is not None, "only studies with this design are reconciled"
        content = await self._store.get_object(keys.make_part(chunk), MAX_TABLE_BYTES)
        if content is None:
            raise StoreError(f"the rows of the chunk {chunk} are missing")
        try:
            return read_rows(content, list_results(design))
        except RefusedError as error:  # a worker that sends such rows must not stop the search
            log.warning("study %s: chunk %d counts as failed: %s", study.metadata.name, chunk, error)
            return {}

    async def _compute(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """Run a function in the thread of the algorithms."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(function, *arguments, **named))


def _lay_out(study: Study, search: Search) -> Layout:
    return search.generations.make_layout(study.spec.chunk_tasks, study.status.chunk_tasks)
