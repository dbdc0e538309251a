# SPDX-License-Identifier: Apache-2.0
"""Tables for people: as text, as HTML for notebooks, and as a DataFrame.

Texts of a table come from vendors, workers and other users. In HTML they are escaped, so that they cannot run code in
a notebook. As text, they lose control characters, so that they cannot control a terminal.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

MAX_SHOWN_ROWS = 60
MAX_SHOWN_CHARACTERS = 120


class Table(Sequence[Mapping[str, Any]]):
    """Rows with the same columns. A table is a sequence of mappings, one for each row.

    Attributes:
        columns: The names of the columns.
        units: The unit of each column that has one.
    """

    def __init__(
        self, columns: Iterable[str], rows: Iterable[Sequence[Any]], units: Mapping[str, str] | None = None
    ) -> None:
        """Keep the rows."""
        self.columns = tuple(columns)
        self.units = dict(units or {})
        self._rows = [tuple(row) for row in rows]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        """Return a row as a mapping, or a table of a slice."""
        if isinstance(index, slice):
            return Table(self.columns, self._rows[index], self.units)
        return dict(zip(self.columns, self._rows[index], strict=True))

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for row in self._rows:
            yield dict(zip(self.columns, row, strict=True))

    def get_column(self, name: str) -> list[Any]:
        """Return the values of a column."""
        place = self.columns.index(name)
        return [row[place] for row in self._rows]

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame; its ``attrs["units"]`` has the units.

        Raises:
            ImportError: pandas is not installed.
        """
        frame = import_pandas().DataFrame(self._rows, columns=list(self.columns))
        frame.attrs["units"] = dict(self.units)
        return frame

    def _repr_html_(self) -> str:
        heads = (f"{name} ({self.units[name]})" if name in self.units else name for name in self.columns)
        head = "".join(f"<th>{_escape(name)}</th>" for name in heads)
        body = "".join(
            "<tr>" + "".join(f"<td>{_escape(_shorten(value))}</td>" for value in row) + "</tr>"
            for row in self._rows[:MAX_SHOWN_ROWS]
        )
        rest = len(self._rows) - MAX_SHOWN_ROWS
        more = f"<p>... and {rest} more rows</p>" if rest > 0 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"

    def __str__(self) -> str:
        rows = [self.columns, *([_shorten(value) for value in row] for row in self._rows[:MAX_SHOWN_ROWS])]
        cells = [[make_printable(str(cell)) for cell in row] for row in rows]
        widths = [max(len(row[place]) for row in cells) for place in range(len(self.columns))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
        ]
        rest = len(self._rows) - MAX_SHOWN_ROWS
        return "\n".join(lines + ([f"... and {rest} more rows"] if rest > 0 else []))

    __repr__ = __str__


def make_printable(text: str, kept: str = "") -> str:
    """Return the text on one line, without characters that control a terminal or the direction of text."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() or character in kept else " " for character in text)


def import_pandas() -> Any:
    """Return the module pandas.

    Raises:
        ImportError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise ImportError("pandas is not installed: pip install 'simyard-client[pandas]'") from None
    return pandas


class Progress:
    """A bar on standard error, only if somebody looks at it: in a notebook, or at a terminal with tqdm installed."""

    def __init__(self, label: str, total: int, *, shown: bool = True, unit: str = "it") -> None:
        """Begin with nothing done."""
        self._bar: Any = None
        if shown and is_interactive():
            try:
                from tqdm.auto import tqdm
            except ImportError:
                return
            self._bar = tqdm(desc=make_printable(label), total=total, unit=unit, unit_scale=unit == "B", leave=False)

    def add(self, count: int) -> None:
        """Add to what is done."""
        if self._bar is not None:
            self._bar.update(count)

    def set(self, done: int, total: int, note: str = "") -> None:
        """Show what is done, and a short text."""
        if self._bar is not None:
            self._bar.total = total
            self._bar.set_postfix_str(make_printable(note), refresh=False)
            self._bar.update(done - self._bar.n)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


def is_interactive() -> bool:
    """Return whether a person looks at the output: in a notebook, or at a terminal."""
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())


def _escape(text: str) -> str:
    return html.escape(make_printable(text))


def _shorten(value: Any) -> str:
    text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[: MAX_SHOWN_CHARACTERS - 3] + "..."
