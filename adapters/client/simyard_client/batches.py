# SPDX-License-Identifier: Apache-2.0
"""Batches: the futures of many calls of one action."""

from __future__ import annotations

import concurrent.futures
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Literal, overload

from simyard_client.display import Progress, Table
from simyard_client.errors import ActionError
from simyard_client.futures import Future, as_completed
from simyard_client.results import Result

Errors = Literal["raise", "return"]


class Batch(Sequence[Future]):
    """The calls that one ``map`` makes: a sequence of futures, in the order of the inputs.

    Attributes:
        id: The id, with which ``client.batch(id)`` finds the calls of a durable batch again.
        durable: The platform keeps the calls and their results, also when this process ends.
    """

    def __init__(self, batch_id: str, futures: Sequence[Future], *, durable: bool) -> None:
        """Keep the futures."""
        self.id = batch_id
        self.durable = durable
        self._futures = list(futures)

    def __len__(self) -> int:
        return len(self._futures)

    @overload
    def __getitem__(self, index: int) -> Future: ...
    @overload
    def __getitem__(self, index: slice) -> list[Future]: ...
    def __getitem__(self, index: int | slice) -> Future | list[Future]:
        """Return the future of one input, or those of several ones."""
        return self._futures[index]

    @overload
    def results(
        self, *, ordered: bool = ..., errors: Literal["raise"] = ..., timeout: float | None = ..., progress: bool = ...
    ) -> Iterator[Result]: ...
    @overload
    def results(
        self, *, ordered: bool = ..., errors: Errors, timeout: float | None = ..., progress: bool = ...
    ) -> Iterator[Result | BaseException]: ...
    def results(
        self, *, ordered: bool = True, errors: Errors = "raise", timeout: float | None = None, progress: bool = True
    ) -> Iterator[Result | BaseException]:
        """Yield the results of all calls, with a bar if somebody looks at it.

        Args:
            ordered: Yield them in the order of the inputs; otherwise as they come.
            errors: ``raise`` raises the error of a failed call; ``return`` yields it.
            timeout: The time for all calls, in seconds.
            progress: Show a bar in notebooks and at terminals.
        """
        with Progress("calls", len(self), shown=progress) as bar:
            source = self._wait_ordered(timeout) if ordered else as_completed(self._futures, timeout)
            for future in source:
                bar.add(1)
                yield get_outcome(future, errors)

    def wait(self, timeout: float | None = None, *, progress: bool = True) -> Batch:
        """Wait until all calls have ended, and return the batch. Failed calls raise no error here.

        Raises:
            TimeoutError: Some calls took longer than ``timeout`` seconds; they continue.
        """
        for _ in self.results(ordered=False, errors="return", timeout=timeout, progress=progress):
            pass
        return self

    def cancel(self) -> None:
        """Cancel all calls that have not ended."""
        for future in self._futures:
            future.cancel()

    @property
    def counts(self) -> dict[str, int]:
        """The number of calls that are waiting or running, succeeded, and failed."""
        ended = [future for future in self._futures if future.done()]
        failed = sum(1 for future in ended if future.cancelled() or future.exception() is not None)
        return {"unfinished": len(self) - len(ended), "succeeded": len(ended) - failed, "failed": failed}

    def to_table(self) -> Table:
        """Return a table with a row for each call: parameters, results, worker, seconds and error."""
        outcomes = [get_outcome(future, "return") if future.done() else None for future in self._futures]
        results = [item if isinstance(item, Result) else None for item in outcomes]
        inputs = _unite(future.parameters for future in self._futures)
        outputs = _unite(item for item in results if item is not None)
        units = next((item.units for item in results if item is not None), {})
        shown = {name: f"result.{name}" if name in (*inputs, *_TAIL) else name for name in outputs}
        rows = []
        for future, outcome, result in zip(self._futures, outcomes, results, strict=True):
            error = outcome if isinstance(outcome, BaseException) else None
            worker = getattr(outcome, "worker", "")
            rows.append(
                (
                    *(future.parameters.get(name) for name in inputs),
                    *(result.get(name) if result is not None else None for name in outputs),
                    worker,
                    result.seconds if result is not None else None,
                    f"{type(error).__name__}: {error}" if error is not None else None,
                )
            )
        return Table(
            (*inputs, *shown.values(), *_TAIL), rows, {shown[name]: units[name] for name in shown if name in units}
        )

    def to_pandas(self) -> Any:
        """Return the table as a DataFrame.

        Raises:
            ImportError: pandas is not installed.
        """
        return self.to_table().to_pandas()

    def _wait_ordered(self, timeout: float | None) -> Iterator[Future]:
        """Yield the futures in their order, when each has ended."""
        waiting = iter(as_completed(self._futures, timeout))
        for future in self._futures:
            while not future.done():
                next(waiting)
            yield future

    def _repr_html_(self) -> str:
        return f"<p>{self._describe()}</p>{self.to_table()._repr_html_()}"

    def __repr__(self) -> str:
        return f"<Batch {self._describe()}>"

    def _describe(self) -> str:
        words = ", ".join(f"{count} {word}" for word, count in self.counts.items() if count)
        return f"{self.id}: {len(self)} calls ({words})"


_TAIL = ("worker", "seconds", "error")


def get_outcome(future: Future, errors: Errors) -> Result | BaseException:
    """Wait for a future, and return its result; its error is raised, or returned if ``errors`` is ``return``."""
    try:
        return future.result()
    except concurrent.futures.CancelledError:
        error: BaseException = ActionError("the call was cancelled before it was sent")
    except Exception as problem:  # noqa: BLE001 - the caller asks for it
        error = problem
    if errors == "raise":
        raise error
    return error


def _unite(mappings: Any) -> list[str]:
    """Return the names of all mappings, each once, in the order of their first occurrence."""
    return list(dict.fromkeys(itertools.chain.from_iterable(mappings)))
