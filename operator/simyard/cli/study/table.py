# SPDX-License-Identifier: Apache-2.0
"""The table of a study: its stored rows, downloaded chunk by chunk, and written as CSV or Parquet."""

from __future__ import annotations

import base64
import csv
import functools
import gzip
import io
import os
import ssl
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import click

from simyard.api.base import Json
from simyard.api.names import STUDIES
from simyard.api.quantities import format_bytes
from simyard.cli.files import CA_VARIABLE
from simyard.cli.kubectl import Kubectl
from simyard.cli.output import Failure
from simyard_adapter.chunks import MAX_ROW_BYTES, MAX_TASKS, PARAMETER, RESULT

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PAGE = 500
ATTEMPTS = 4
TIMEOUT_SECONDS = 60
TAIL = ("worker", "seconds", "attempts", "reason", "error")
MAX_PART_BYTES = MAX_TASKS * 8 * MAX_ROW_BYTES
"""The largest table of one chunk. A row has a result of at most MAX_ROW_BYTES, its parameters, and escapes of both."""
MAX_LINE_CHARACTERS = 1024 * 1024
"""The largest number of characters of a table that are read at once."""
Row = list[str]


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a study's table.

    Attributes:
        stored: the header of the stored rows, with prefixes of parameters and results.
        shown: the names for people: without the prefix, unless two columns then had the same name.
    """

    stored: tuple[str, ...]
    shown: tuple[str, ...]

    @classmethod
    def read(cls, header: Sequence[str]) -> Columns:
        """Return the columns of a stored header."""
        short = [name.removeprefix(PARAMETER).removeprefix(RESULT) for name in header]
        shown = [name if short.count(name) == 1 else header[place] for place, name in enumerate(short)]
        return cls(tuple(header), tuple(shown))

    def list_places(self, prefix: str) -> list[int]:
        """Return the places of the columns with a prefix: parameters or results."""
        return [place for place, name in enumerate(self.stored) if name.startswith(prefix)]


def list_parts(kubectl: Kubectl, name: str) -> Iterator[Json]:
    """Yield the stored chunks of a study: number, size, and the rows or the request that downloads them."""
    following = ""
    while True:
        query = f"?limit={PAGE}" + (f"&continue={quote(following, safe='')}" if following else "")
        page = kubectl.raw("get", STUDIES, f"{name}/results{query}")
        yield from page["items"]
        following = page["metadata"].get("continue", "")
        if not following:
            return


def read_rows(kubectl: Kubectl, name: str) -> Iterator[Row]:
    """Yield the header of a study's table, and then its rows in the order of the tasks.

    Memory holds one chunk at a time, and the list of all chunks. A bar on standard error shows the progress.

    Raises:
        Failure: the study has no stored rows, or a download failed.
    """
    parts = list(list_parts(kubectl, name))
    if not parts:
        raise Failure(f"study/{name} has no results yet: see `kubectl simyard study watch {name}`")
    header: Row | None = None
    size = sum(part["bytes"] for part in parts)
    with click.progressbar(
        length=max(size, 1), label=f"downloading {format_bytes(size)}", file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        for part in parts:
            table = read_part(_fetch(part))
            try:
                found = next(table)
                if header is None:
                    yield found
                elif found != header:
                    raise Failure(f"study/{name}: the columns of chunk {part['chunk']} differ from those before it")
                header = found
                yield from table
            except (OSError, EOFError, StopIteration, zlib.error, csv.Error, UnicodeDecodeError) as error:
                raise Failure(f"study/{name}: the rows of chunk {part['chunk']} arrived damaged: {error}") from None
            bar.update(part["bytes"])


def read_part(content: bytes, max_bytes: int = MAX_PART_BYTES) -> Iterator[Row]:
    """Yield the header and the rows of a chunk, whose compressed table a worker wrote; its size is not trusted.

    Raises:
        OSError, EOFError, zlib.error, csv.Error, UnicodeDecodeError: the table is damaged, or larger than the table of
            a chunk.
    """
    unpacked = io.BufferedReader(_Unpacked(content, max_bytes))
    lines = io.TextIOWrapper(unpacked, "utf-8", newline="")
    width = 0
    for number, row in enumerate(csv.reader(iter(lambda: lines.readline(MAX_LINE_CHARACTERS), ""))):
        width = width or len(row)
        if number > MAX_TASKS or len(row) != width:
            raise csv.Error(f"row {number} is one too many, or has {len(row)} cells in place of {width}")
        yield row


class _Unpacked(io.RawIOBase):
    """A stream of the unpacked bytes of a compressed table, which ends with an error above a number of bytes."""

    def __init__(self, content: bytes, max_bytes: int) -> None:
        self._file = gzip.GzipFile(fileobj=io.BytesIO(content))
        self._max_bytes = self._left = max_bytes

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read the next bytes into a buffer, and return their number."""
        count = self._file.readinto(buffer)
        self._left -= count
        if self._left < 0:
            raise OSError(f"the table unpacks to more than {self._max_bytes} bytes")
        return count


class TextFile(Protocol):
    """A file that receives text."""

    def write(self, text: str, /) -> object:
        """Write a text."""


def write_csv(rows: Iterable[Row], file: TextFile) -> int:
    """Write a table as CSV, with the names of columns for people; return the number of tasks."""
    lines = iter(rows)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(Columns.read(next(lines)).shown)
    count = 0
    for count, row in enumerate(lines, start=1):  # noqa: B007 - the count is the result
        writer.writerow(row)
    return count


def write_parquet(rows: Iterable[Row], path: Path) -> None:
    """Write a table as Parquet; columns of numbers have the type of their values.

    Raises:
        Failure: pyarrow is not installed, or the file cannot be written.
    """
    try:
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        raise Failure("pyarrow, which writes Parquet, is not installed: pip install 'simyard[parquet]'") from None
    with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="", encoding="utf-8") as file:
        write_csv(rows, file)
        file.flush()
        text = pyarrow.csv.ConvertOptions(
            column_types={name: pyarrow.string() for name in ("worker", "reason", "error")}, strings_can_be_null=True
        )
        try:
            table = pyarrow.csv.read_csv(file.name, convert_options=text)
            pyarrow.parquet.write_table(table, path, compression="zstd")
        except (OSError, pyarrow.ArrowInvalid) as error:
            raise Failure(f"{path}: cannot write Parquet: {error}") from None


@functools.cache
def _make_tls_context() -> ssl.SSLContext:
    """Return the context for all downloads; to read the certificates takes longer than to download a chunk."""
    return ssl.create_default_context(cafile=os.environ.get(CA_VARIABLE))


def _fetch(part: Json) -> bytes:
    """Return the content of one part; a broken connection is tried again."""
    if "content" in part:  # the installation has no file store
        return base64.b64decode(part["content"])
    url = part["download"]["url"]
    if not url.startswith(("https://", "http://")):
        raise Failure(f"chunk {part['chunk']}: the API server answered with a URL that is not one of HTTP")
    request = urllib.request.Request(url, headers=part["download"].get("headers", {}))  # noqa: S310 - checked above
    context = _make_tls_context()
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=context) as answer:  # noqa: S310
                content: bytes = answer.read(part["bytes"] + 1)
            if len(content) == part["bytes"]:
                return content
            raise OSError(f"it has not the announced {part['bytes']} bytes")
        except urllib.error.HTTPError as error:
            if error.code < 500 or attempt == ATTEMPTS:
                raise Failure(f"the file store refused chunk {part['chunk']}: HTTP {error.code}; try again") from None
        except OSError as error:
            if attempt == ATTEMPTS:
                raise Failure(f"chunk {part['chunk']} cannot be downloaded: {error}") from None
        time.sleep(2.0**attempt / 4)
    raise AssertionError


def to_value(text: str) -> Any:
    """Return the number in a cell; None if the cell is empty or no number."""
    try:
        return float(text)
    except ValueError:
        return None
