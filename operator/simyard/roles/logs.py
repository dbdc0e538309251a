# SPDX-License-Identifier: Apache-2.0
"""Logs on standard error, as lines of text or of JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """Formatter of log records as JSON objects with time, level, logger, message, and the traceback of an error."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for a log record."""
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def configure_logs(form: str, level: str) -> None:
    """Set the form (``text`` or ``json``) and the level of all logs of the process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.captureWarnings(True)  # without this, warnings of libraries would be plain text between lines of JSON
    logging.getLogger("kopf").setLevel(max(logging.getLogger().level, logging.WARNING))
