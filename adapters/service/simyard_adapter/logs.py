"""The worker's log: structured lines on standard error, and the last of them kept for those who ask over the broker."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import deque
from typing import Any, MutableMapping, Optional

from simyard_adapter.limits import MAX_LOG_BYTES

LOGGER = logging.getLogger("simyard_adapter")
KEPT_LINES = 2000
LINE_LIMIT = 2000


class WorkerLog(logging.LoggerAdapter):  # type: ignore[type-arg]  # not subscriptable in Python 3.9
    """Writes to the adapter's logger under the worker's name, and keeps the last 2,000 lines.

    ``extra={"invocation": id}`` puts a line under an invocation.
    """

    def __init__(self, worker: str) -> None:
        super().__init__(LOGGER, {"worker": worker})
        self._lines: deque[tuple[str, str]] = deque(maxlen=KEPT_LINES)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the worker to the record (see :class:`logging.LoggerAdapter`)."""
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a line and keep it, unless it is for debugging."""
        if level >= logging.INFO:
            text = str(msg) % args if args else str(msg)
            invocation = str((kwargs.get("extra") or {}).get("invocation", ""))
            self._lines.append((invocation, f"{_utc(time.time())} {text[:LINE_LIMIT]}"))
        super().log(level, msg, *args, **kwargs)

    def tail(self, lines: Optional[int] = None, invocation: str = "") -> str:
        """The last lines, of everything or of one invocation; as many as one reply holds."""
        kept = [text for owner, text in tuple(self._lines) if not invocation or owner == invocation]
        wanted = kept if lines is None else kept[-lines:] if lines > 0 else []
        left, first = MAX_LOG_BYTES, len(wanted)
        while first > 0 and (left := left - len(json.dumps(wanted[first - 1]))) >= 0:
            first -= 1
        return "\n".join(wanted[first:])


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """See :class:`logging.Formatter`."""
        line: dict[str, Any] = {"time": _utc(record.created), "level": record.levelname, "logger": record.name}
        line.update({key: getattr(record, key) for key in ("worker", "invocation") if hasattr(record, key)})
        line["message"] = record.getMessage()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class TextFormatter(logging.Formatter):
    """Time, level, worker or logger, invocation, message."""

    def format(self, record: logging.LogRecord) -> str:
        """See :class:`logging.Formatter`."""
        where = " ".join(str(getattr(record, key)) for key in ("worker", "invocation") if hasattr(record, key))
        text = f"{_utc(record.created)} {record.levelname} {where or record.name}: {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def configure(form: str) -> None:
    """Log to standard error as ``text`` or ``json``; the AMQP library is heard only when something fails for good."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)


def _utc(seconds: float) -> str:
    milliseconds = int(seconds * 1000) % 1000
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03d}Z"
