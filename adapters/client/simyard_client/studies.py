# SPDX-License-Identifier: Apache-2.0
"""Studies: many calls of one action as one object, whose results are in the file store."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from simyard_client.connection import Connection
from simyard_client.display import Progress, Table
from simyard_client.errors import FileError, NotFoundError, StudyFailedError
from simyard_client.files import make_parameters
from simyard_client.paths import (
    API_VERSION,
    STUDIES,
    Json,
    build_path,
    build_subresource_path,
    find_condition,
    has_condition,
)
from simyard_client.streams import iterate
from simyard_client.watching import Snapshot, list_items, watch

if TYPE_CHECKING:
    from simyard_client.api import Api

PARAMETER, RESULT = "parameters.", "result."
"""The prefixes of columns of stored rows."""
_TEXTS = ("worker", "reason", "error")
_DESIGNS = {"random": "random", "latin-hypercube": "latinHypercube", "sobol": "sobol", "halton": "halton"}


@dataclass(frozen=True)
class Range:
    """The values of a parameter from ``start`` to ``stop``, both included.

    A grid needs ``step`` or ``count``; a design with samples needs neither. ``log`` means equal ratios.
    """

    start: float
    stop: float
    step: float | None = None
    count: int | None = None
    log: bool = False

    def to_json(self) -> Json:
        """Return the fields of an axis."""
        axis: Json = {"start": _decimal(self.start), "stop": _decimal(self.stop)}
        if self.step is not None:
            axis["step"] = _decimal(self.step)
        if self.count is not None:
            axis["count"] = self.count
        return axis | ({"scale": "Log"} if self.log else {})


class Study:
    """A study.

    Attributes:
        name: The name of the object.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        """Refer to a study; nothing is sent yet."""
        self._connection = connection
        self.name = name

    def read(self) -> Json:
        """Return the object as the API has it now."""
        return self._connection.get(self._path)

    def watch(self) -> Iterator[Json]:
        """Yield the status of the study after each change, until the study has ended.

        Raises:
            NotFoundError: The study does not exist any more.
        """

        async def follow(api: Api) -> Any:
            async for event in watch(api, build_path(STUDIES, self._connection.namespace), name=self.name):
                item = event.items.get(self.name) if isinstance(event, Snapshot) else event.item
                if item is None or (not isinstance(event, Snapshot) and event.deleted):
                    raise NotFoundError(f"the study {self.name} does not exist")
                yield item
                if (item.get("status") or {}).get("finishedTime"):
                    return

        for item in iterate(self._connection, follow(self._connection.api)):
            yield item.get("status") or {}

    def wait(self, *, progress: bool = True) -> Study:
        """Wait until the study has ended, with a bar if somebody looks at it, and return the study.

        Raises:
            StudyFailedError: The study failed; the results of its finished tasks are kept.
        """
        status: Json = {}
        with Progress(f"tasks of {self.name}", 0, shown=progress) as bar:
            for status in self.watch():
                done = int(status.get("succeeded") or 0) + int(status.get("failed") or 0)
                failed = int(status.get("failed") or 0)
                bar.set(done, total=int(status.get("tasks") or 0), note=f"{failed} failed" if failed else "")
        if has_condition({"status": status}, "Failed"):
            condition = find_condition({"status": status}, "Failed")
            reason, message = condition.get("reason", ""), condition.get("message", "")
            raise StudyFailedError(f"the study {self.name} failed: {reason}: {message}", reason=reason)
        return self

    def suspend(self) -> None:
        """Start no further tasks until :meth:`resume`."""
        self._patch({"suspend": True})

    def resume(self) -> None:
        """Start tasks again."""
        self._patch({"suspend": False})

    def cancel(self) -> None:
        """End the study; the results of its finished tasks are kept."""
        self._patch({"cancel": True})

    def delete(self) -> None:
        """Delete the study and its results."""
        self._connection.run(lambda api: api.delete(self._path))

    def results(self, *, progress: bool = True) -> Table:
        """Return a table with a row for each finished task: index, parameters, results, worker, seconds and error."""
        header: list[str] = []
        rows: list[list[Any]] = []
        for columns, lines in self._read_parts(progress):
            header = columns
            rows += lines
        return Table(_shorten(header), rows)

    def to_pandas(self) -> Any:
        """Return the results as a DataFrame.

        Raises:
            ImportError: pandas is not installed.
        """
        return self.results().to_pandas()

    def to_table(self) -> Table:
        """Return a table of the state of the study."""
        item = self.read()
        status, complete = item.get("status") or {}, find_condition(item, "Complete")
        rows: list[tuple[str, Any]] = [("action", item["spec"]["action"]), ("state", complete.get("reason") or "")]
        rows += [(name, status.get(name) or 0) for name in ("tasks", "succeeded", "failed", "running")]
        rows += [(failure["reason"], failure.get("message") or "") for failure in status.get("failures") or ()]
        return Table((self.name, "value"), rows)

    def _repr_html_(self) -> str:
        return self.to_table()._repr_html_()

    def __repr__(self) -> str:
        return f"<Study {self._connection.namespace}/{self.name}>"

    @property
    def _path(self) -> str:
        return build_path(STUDIES, self._connection.namespace, self.name)

    def _patch(self, change: Json) -> None:
        self._connection.run(lambda api: api.patch(self._path, {"spec": change}))

    def _read_parts(self, progress: bool) -> Iterator[tuple[list[str], list[list[Any]]]]:
        """Yield the columns and the rows of each stored chunk, in the order of the tasks."""
        path = build_subresource_path(STUDIES, self._connection.namespace, self.name, "results")
        parts, _ = self._connection.run(lambda api: list_items(api, path))
        with Progress(f"results of {self.name}", sum(part["bytes"] for part in parts), shown=progress, unit="B") as bar:
            requests = [part["download"] for part in parts if "download" in part]
            downloads = iterate(self._connection, self._connection.download(requests)) if requests else iter(())
            for part in parts:  # without a file store, a part has its rows in place of a request
                content = base64.b64decode(part["content"]) if "content" in part else next(downloads)
                bar.add(part["bytes"])
                try:
                    columns, *lines = csv.reader(io.StringIO(gzip.decompress(content).decode(), newline=""))
                    rows = [list(map(_read_cell, columns, line)) for line in lines]
                except (OSError, EOFError, ValueError, csv.Error) as error:
                    raise FileError(
                        f"{self.name}: the rows of chunk {part['chunk']} arrived damaged: {error}"
                    ) from None
                yield columns, rows


class StudyMaker:
    """The part of a pool or a service that creates studies."""

    _connection: Connection
    _target: Any

    def study(
        self,
        name: str,
        action: str,
        vary: Mapping[str, Any] | Iterable[Mapping[str, Any]],
        /,
        *,
        design: str = "grid",
        count: int | None = None,
        seed: int = 0,
        spec: Mapping[str, Any] | None = None,
        **fixed: Any,
    ) -> Study:
        """Create a study, which calls an action for many points, and return it.

        Args:
            name: The name of the study.
            action: The name of the action.
            vary: The parameters that vary: for each its values or a :class:`Range`. Or a list of points, such as the
                rows of ``DataFrame.to_dict("records")``.
            design: ``grid`` for all combinations; ``random``, ``latin-hypercube``, ``sobol`` or ``halton``.
            count: The number of samples.
            seed: The seed of the samples.
            spec: Further fields of ``spec``, such as ``{"retriesPerTask": 1}``.
            fixed: Parameters that all tasks share.

        Raises:
            InvalidError: The API server refused the study.
            ValueError: The design is unknown, or it lacks ``count``.
        """
        item: Json = {
            "apiVersion": API_VERSION,
            "kind": "Study",
            "metadata": {"name": name, "namespace": self._connection.namespace},
            "spec": {
                "target": self._target.reference,
                "action": action,
                "parameters": make_parameters(self._connection, fixed, frozenset()),
                "design": make_design(self._connection, vary, design, count, seed),
                **(spec or {}),
            },
        }
        path = build_path(STUDIES, self._connection.namespace)
        self._connection.run(lambda api: api.create(path, item))
        return Study(self._connection, name)


def make_design(
    connection: Connection,
    vary: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    design: str,
    count: int | None,
    seed: int,
) -> Json:
    """Return ``spec.design`` of a study.

    Raises:
        ValueError: The design is unknown, lacks ``count``, or has points with different parameters.
    """
    if not isinstance(vary, Mapping):
        points = [make_parameters(connection, point, frozenset()) for point in vary]
        columns = list(points[0]) if points else []
        if any(list(point) != columns for point in points):
            raise ValueError("the points must have the same parameters in the same order")
        return {"table": {"columns": columns, "rows": [list(point.values()) for point in points]}}
    axes = [
        {"name": name, **values.to_json()}
        if isinstance(values, Range)
        else {"name": name, "values": make_parameters(connection, {name: list(values)}, frozenset())[name]}
        for name, values in vary.items()
    ]
    if design == "grid":
        return {"grid": {"axes": axes}}
    if design not in _DESIGNS:
        raise ValueError(f"the design {design!r} is unknown: choose grid, {', '.join(_DESIGNS)}")
    if count is None:
        raise ValueError(f"the design {design} needs count, the number of samples")
    return {_DESIGNS[design]: {"axes": axes, "count": count, "seed": seed}}


def _shorten(header: Sequence[str]) -> list[str]:
    """Return the names of columns without their prefixes, unless two columns then had the same name."""
    short = [name.removeprefix(PARAMETER).removeprefix(RESULT) for name in header]
    return [name if short.count(name) == 1 else header[place] for place, name in enumerate(short)]


def _read_cell(name: str, text: str) -> Any:
    """Return the value in a cell: a number, a truth value, a list or an object as JSON writes them, or a text."""
    if not text or name in _TEXTS:
        return text or None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _decimal(value: float) -> int | str:
    """Return a number as Kubernetes objects hold it: an integer, or a decimal in a string."""
    exact = Decimal(str(value))
    return int(exact) if exact == exact.to_integral_value() and abs(exact) < 2**31 else str(float(value))
