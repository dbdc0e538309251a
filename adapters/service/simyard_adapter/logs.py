# SPDX-License-Identifier: Apache-2.0
"""The worker's log: structured lines on standard error; the last lines are kept for requests over the broker."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import deque
from typing import Any, Iterable, Iterator, MutableMapping, Optional

from simyard_adapter.limits import MAX_LOG_BYTES

LOGGER = logging.getLogger("simyard_adapter")
MAX_LINES = 2000
MAX_LINE_CHARACTERS = 2000


class WorkerLog(logging.LoggerAdapter):  # type: ignore[type-arg]  # not subscriptable in Python 3.9
    """The log of one worker: it writes to the adapter's logger and keeps the last 2,000 lines.

    ``extra={"invocation": id}`` assigns a line to an invocation. A position in the log is the number of lines before
    it, since the adapter started.
    """

    def __init__(self, worker: str) -> None:
        super().__init__(LOGGER, {"worker": worker})
        self._lines: deque[tuple[str, str]] = deque(maxlen=MAX_LINES)
        self._end = 0
        self._lock = threading.Lock()

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the worker to the log record (see :class:`logging.LoggerAdapter`)."""
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a line; keep it if its level is INFO or higher."""
        if level >= logging.INFO:
            text = str(msg) % args if args else str(msg)
            invocation = str((kwargs.get("extra") or {}).get("invocation", ""))
            with self._lock:
                self._lines.append((invocation, f"{format_utc(time.time())} {text[:MAX_LINE_CHARACTERS]}\n"))
                self._end += 1
        super().log(level, msg, *args, **kwargs)

    def read_tail(self, lines: Optional[int] = None, invocation: str = "") -> tuple[str, int]:
        """Return the last lines of the log or of one invocation, and the position after them.

        The text is within the size limit of a reply.
        """
        with self._lock:
            kept, end = tuple(self._lines), self._end
        found = [text for owner, text in kept if not invocation or owner == invocation]
        wanted = found if lines is None else found[-lines:] if lines > 0 else []
        return "".join(reversed(list(_limit(reversed(wanted))))), end

    def read_after(self, position: int) -> tuple[str, int]:
        """Return the next kept lines after a position, and the position after them.

        A position beyond the end belongs to an earlier adapter: then the lines from the start are returned.
        """
        with self._lock:
            kept, end = tuple(self._lines), self._end
        first = end - len(kept)
        start = max(position, first) if position <= end else first
        lines = list(_limit(text for _, text in kept[start - first :]))
        return "".join(lines), start + len(lines)


def _limit(lines: Iterable[str]) -> Iterator[str]:
    """Yield the first lines whose JSON is within the size limit of a reply."""
    left = MAX_LOG_BYTES
    for line in lines:
        left -= len(json.dumps(line))
        if left < 0:
            return
        yield line


class JsonFormatter(logging.Formatter):
    """A formatter that writes one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        line: dict[str, Any] = {"time": format_utc(record.created), "level": record.levelname, "logger": record.name}
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
        text = f"{format_utc(record.created)} {record.levelname} {where or record.name}: {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def configure(form: str) -> None:
    """Log to standard error as ``text`` or ``json``; of the AMQP client, only critical errors are logged."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)


def format_utc(seconds: float) -> str:
    """Return a time in seconds since the epoch as the logs show it: RFC 3339 with milliseconds."""
    milliseconds = int(seconds * 1000) % 1000
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03d}Z"
