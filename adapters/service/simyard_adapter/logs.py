# SPDX-License-Identifier: Apache-2.0
"""The worker's log: structured lines on standard error; the last lines are kept for requests over the broker."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, MutableMapping, Optional

from simyard_adapter.limits import MAX_LOG_BYTES

LOGGER = logging.getLogger("simyard_adapter")
MAX_LINES = 2000
MAX_LINE_CHARACTERS = 2000
MAX_ACTION_LOG_BYTES = 64 * 1024 * 1024
"""Limit of the uploaded log of one action; the end of a longer log is dropped."""


class WorkerLog(logging.LoggerAdapter):  # type: ignore[type-arg]  # not subscriptable in Python 3.9
    """The log of one worker: it writes to the adapter's logger and keeps the last 2,000 lines.

    ``extra={"invocation": id}`` assigns a line to an invocation.
    """

    def __init__(self, worker: str) -> None:
        super().__init__(LOGGER, {"worker": worker})
        self._lines: deque[tuple[str, str]] = deque(maxlen=MAX_LINES)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the worker to the log record (see :class:`logging.LoggerAdapter`)."""
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a line; keep it if its level is INFO or higher."""
        if level >= logging.INFO:
            text = str(msg) % args if args else str(msg)
            invocation = str((kwargs.get("extra") or {}).get("invocation", ""))
            self._lines.append((invocation, f"{_utc(time.time())} {text[:MAX_LINE_CHARACTERS]}"))
        super().log(level, msg, *args, **kwargs)

    def read_tail(self, lines: Optional[int] = None, invocation: str = "") -> str:
        """Return the last lines of the log or of one invocation, within the size limit of a reply."""
        kept = [text for owner, text in tuple(self._lines) if not invocation or owner == invocation]
        wanted = kept if lines is None else kept[-lines:] if lines > 0 else []
        left, first = MAX_LOG_BYTES, len(wanted)
        while first > 0 and (left := left - len(json.dumps(wanted[first - 1]))) >= 0:
            first -= 1
        return "\n".join(wanted[first:])


class ActionLog:
    """The whole log of an invocation, in a file that is uploaded when the invocation ends; any thread may append.

    Attributes:
        path: The file.
        lines: The number of lines.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        self._left = MAX_ACTION_LOG_BYTES
        self._lock = threading.Lock()

    def append(self, text: str) -> None:
        """Add a line; a line above the limit of the file is dropped, as is a line that the disk does not take."""
        line = f"{_utc(time.time())} {text}\n".encode(errors="replace")
        with self._lock, contextlib.suppress(OSError):
            self._left -= len(line)
            if self._left >= 0:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("ab") as file:
                    file.write(line)
                self.lines += 1


class JsonFormatter(logging.Formatter):
    """A formatter that writes one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        line: dict[str, Any] = {"time": _utc(record.created), "level": record.levelname, "logger": record.name}
        line.update({key: getattr(record, key) for key in ("worker", "invocation") if hasattr(record, key)})
        line["message"] = record.getMessage()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class TextFormatter(logging.Formatter):
    """A formatter that writes time, level, worker or logger, invocation and message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        where = " ".join(str(getattr(record, key)) for key in ("worker", "invocation") if hasattr(record, key))
        text = f"{_utc(record.created)} {record.levelname} {where or record.name}: {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def configure(form: str) -> None:
    """Log to standard error as ``text`` or ``json``; of the AMQP client, only critical errors are logged."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)


def _utc(seconds: float) -> str:
    milliseconds = int(seconds * 1000) % 1000
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03d}Z"
