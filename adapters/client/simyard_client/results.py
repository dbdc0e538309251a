# SPDX-License-Identifier: Apache-2.0
"""Results of actions: values by name, with their units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from simyard_client.display import Table


class Result(Mapping[str, Any]):
    """The result of one action: ``result["max_displacement"]`` or ``result.max_displacement``.

    The attributes below win over values of the same name; such a value is there as an item.

    Attributes:
        units: The unit of each value that has one, as the vendor declared it.
        worker: The name of the worker that ran the action.
        seconds: The time for which the action ran.
        action: The name of the ServiceAction; empty for a Sync call.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        units: Mapping[str, str] | None = None,
        *,
        worker: str = "",
        seconds: float | None = None,
        action: str = "",
    ) -> None:
        """Keep the values."""
        self._values = dict(values)
        self.units = dict(units or {})
        self.worker = worker
        self.seconds = seconds
        self.action = action

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        """Return the value with this name."""
        if not name.startswith("_") and name in self._values:
            return self._values[name]
        raise AttributeError(f"the result has no {name!r}; it has: {', '.join(self.__dict__.get('_values', ()))}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._values]

    def to_table(self) -> Table:
        """Return a table with a row for each value."""
        return Table(("result", "value", "unit"), [(name, self[name], self.units.get(name, "")) for name in self])

    def _repr_html_(self) -> str:
        return self.to_table()._repr_html_()

    def __repr__(self) -> str:
        return str(self.to_table())
