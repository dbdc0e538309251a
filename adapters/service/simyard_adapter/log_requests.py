# SPDX-License-Identifier: Apache-2.0
"""Requests for the log of a worker, or of one of its invocations.

A reader who follows a log asks again and again for the lines after a position, which the last reply gave. The worker
keeps nothing for a reader. So a reader who goes away costs nothing, and a lost reply loses no line.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

from simyard_adapter.action_logs import ActionLog, ActionLogs
from simyard_adapter.backend import run_in_thread
from simyard_adapter.invocations import RefusedError
from simyard_adapter.logs import WorkerLog
from simyard_adapter.wire import ErrorReason


class LogRequests:
    """The requests for the logs of one worker."""

    def __init__(self, log: WorkerLog, logs: ActionLogs) -> None:
        self._log = log
        self._logs = logs

    async def read(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the reply to a request for lines.

        Raises:
            RefusedError: A field is not an integer.
        """
        lines, after = _read_integer(body, "tailLines"), _read_integer(body, "after")
        invocation = str(body.get("invocation") or "")
        kept = self._logs.find(invocation)
        if kept is not None:
            return await _read_action_log(kept, lines, after)
        if not invocation:
            text, position = self._log.read_tail(lines) if after is None else self._log.read_after(after)
            return {"log": text, "next": position, "ended": False}
        if after:  # The reader knows lines that this worker does not have any more.
            return {"log": "", "next": after, "ended": True}
        text, position = self._log.read_tail(lines, invocation)
        return {"log": text, "next": position, "ended": True}


async def _read_action_log(log: ActionLog, lines: Optional[int], after: Optional[int]) -> Mapping[str, Any]:
    ended = log.ended.is_set()
    try:
        text, position = await run_in_thread(lambda: log.read_tail(lines) if after is None else log.read(after))
    except OSError:  # the file was deleted meanwhile, or the disk is broken
        return {"log": "", "next": after or 0, "ended": True}
    return {"log": text, "next": position, "ended": ended and position >= log.size}


def _read_integer(body: Mapping[str, Any], field: str) -> Optional[int]:
    value = body.get(field)
    if value is not None and (not isinstance(value, int) or value < 0):
        raise RefusedError(ErrorReason.INVALID_REQUEST, "must be an integer of 0 or more", field)
    return value
