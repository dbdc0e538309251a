"""Runs one invocation: its time-out, its cancellation, and what its end means to the caller."""

from __future__ import annotations

import asyncio
import time
from typing import Mapping

from simyard_adapter.context import Context
from simyard_adapter.declarations import InvalidValuesError, Json, check_values
from simyard_adapter.errors import ActionError, ParameterError
from simyard_adapter.invocations import ActionRequest, Outcome
from simyard_adapter.limits import MAX_RESULT_BYTES
from simyard_adapter.programs import TERMINATION_GRACE_SECONDS
from simyard_adapter.transport import encode
from simyard_adapter.wire import Reason, WireError, result_too_large

STOP_GRACE_SECONDS = TERMINATION_GRACE_SECONDS + 3.0
"""How long an invocation that was told to stop is waited for before its end is reported all the same."""

HANG_SECONDS = 30.0
"""Limit of the time that an invocation goes on after its end was reported, while others wait for their turn."""

MESSAGE_LIMIT = 8000
"""Characters of an error's message."""


async def outcome_of(work: "asyncio.Future[Mapping[str, Json]]", context: Context, request: ActionRequest) -> Outcome:
    """Wait for the end of ``work``, stopping it after its time-out; it may still run afterwards if it ignores that."""
    started_at, started = time.time(), time.monotonic()
    loop = asyncio.get_running_loop()
    stopped = loop.create_future()

    def settle() -> None:
        if not stopped.done():
            stopped.set_result(None)

    with context.stopping(lambda: loop.call_soon_threadsafe(settle)):
        await asyncio.wait({work, stopped}, timeout=request.timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    if not work.done():
        context.stop(Reason.TIMED_OUT)
        await asyncio.wait({work}, timeout=STOP_GRACE_SECONDS)
    seconds = time.monotonic() - started
    error = work.exception() if work.done() and not work.cancelled() else None
    if context.stopped is not None:
        return Outcome(started_at, seconds, error=stop_error(context.stopped, request))
    if error is None:
        try:
            result = check_values(work.result(), request.action.result, "result")
            size = len(encode(result))
            if size > MAX_RESULT_BYTES:
                return Outcome(started_at, seconds, error=result_too_large(size))
            return Outcome(started_at, seconds, result=result)
        except (InvalidValuesError, TypeError, ValueError, AttributeError) as invalid:
            error = invalid
    return Outcome(started_at, seconds, error=wire_error(error))


def wire_error(error: BaseException) -> WireError:
    """What a caller is told of an exception that a connector raised."""
    try:
        text = str(error)[:MESSAGE_LIMIT]
    except Exception:  # noqa: BLE001 - the connector's own code
        text = "its message cannot be read"
    if isinstance(error, ParameterError):
        return WireError(Reason.INVALID_PARAMETERS, error.problem[:MESSAGE_LIMIT], error.field)
    if isinstance(error, ActionError):
        return WireError(Reason.ACTION_FAILED, text)
    return WireError(Reason.CONNECTOR_CRASHED, f"{type(error).__name__}: {text}")


def stop_error(reason: Reason, request: ActionRequest) -> WireError:
    """What a caller is told of an invocation that was stopped."""
    messages = {
        Reason.TIMED_OUT: f"it did not end within {request.timeout_seconds:g} s",
        Reason.CANCELLED: "it was cancelled",
        Reason.INTERRUPTED: "the worker ended while it ran",
    }
    return WireError(reason, messages[reason])
