# SPDX-License-Identifier: Apache-2.0
"""Answers the questions of workers that want to store the rows of a chunk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from simyard.api.study_record import MAX_RECORD_BYTES, MAX_STUDY_RECORD_BYTES
from simyard.fleet.registry import Registry
from simyard.fleet.studies.flights import parse_chunk_id
from simyard.fleet.studies.runs import Run
from simyard.guest.messages import PartWanted
from simyard.plan.studies.study import is_finished
from simyard_adapter.declarations import Json
from simyard_adapter.uploads import UploadOffer


class PartRefusedError(Exception):
    """The refusal of a question about the rows of a chunk; ``retryable`` if a later question may be answered."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


Admit = Callable[[PartWanted], Awaitable[None]]
"""Counts the rows of a chunk in the quota of their namespace; raises PartRefusedError."""


class Parts:
    """The rows that workers offer.

    ``runs`` has the studies that run, by uid. ``changed`` is called with the uid of a study whose status changes.
    """

    def __init__(self, registry: Registry, runs: Mapping[str, Run], changed: Callable[[str], None]) -> None:
        self._registry = registry
        self._runs = runs
        self._changed = changed

    async def offer(self, worker_uid: str, question: PartWanted, admit: Admit) -> Mapping[str, Json]:
        """Return the request with which a worker uploads the rows of a chunk, or take the rows from the question.

        Raises:
            PartRefusedError: the chunk is not assigned to the worker, or its rows do not fit.
            StoreError: the rows cannot be stored now.
        """
        named = parse_chunk_id(question.invocation)
        study = None if named is None else self._registry.find_study(named.study_uid)
        if named is None or study is None or is_finished(study):
            raise PartRefusedError("the study is gone or has ended")
        run = self._runs.get(named.study_uid)
        if run is None:
            raise PartRefusedError("the operator has just started and reads the study", retryable=True)
        flight = run.assigned.find(named.chunk)
        if flight is None or (flight.attempt, flight.worker_uid) != (named.attempt, worker_uid):
            if named.chunk in run.progress.finished:
                return UploadOffer(present=True).to_json()
            raise PartRefusedError("the chunk is assigned to another worker")
        if question.summary.tasks != len(run.layout.get_tasks(named.chunk)):
            raise PartRefusedError("the chunk has another number of tasks")
        if run.store.takes_uploads:
            flight.size = question.bytes
            try:
                await admit(question)
            except PartRefusedError as error:
                run.blocked = str(error)
                self._changed(named.study_uid)
                raise
            run.blocked = ""
            offer = run.store.sign_part(run.keys, named.chunk, question.address, question.bytes, question.summary)
            return offer.to_json()
        if question.bytes > MAX_RECORD_BYTES:
            raise PartRefusedError(
                f"the rows of the chunk have {question.bytes} bytes, and without a file store at most"
                f" {MAX_RECORD_BYTES} are accepted: create the study with a smaller spec.chunkTasks"
            )
        others = sum(it.size for it in run.assigned if it is not flight)  # stored, or soon, and not counted yet
        if run.progress.size + others + question.bytes > MAX_STUDY_RECORD_BYTES:
            run.blocked = (
                f"all rows of a study have at most {MAX_STUDY_RECORD_BYTES:,} bytes without a file store, and the chunk"
                f" {named.chunk} does not fit: create smaller studies, or ask the platform team to set files.mode"
            )
            self._changed(named.study_uid)
            raise PartRefusedError(run.blocked)
        flight.size = question.bytes
        if not question.content:
            return {"inline": True}
        return {"stored": await run.store.create_part(run.keys, named.chunk, question.content, question.summary)}
