# SPDX-License-Identifier: Apache-2.0
"""Runs one invocation: its timeout, its cancellation, and its outcome for the caller."""

from __future__ import annotations

import asyncio
import time
from typing import Mapping

from simyard_adapter.context import Context
from simyard_adapter.declarations import InvalidValuesError, Json, check_values
from simyard_adapter.errors import ActionError, FileTransferError, ParameterError
from simyard_adapter.invocations import ActionRequest, Outcome
from simyard_adapter.limits import MAX_RESULT_BYTES
from simyard_adapter.programs import TERMINATION_GRACE_SECONDS
from simyard_adapter.transport import encode
from simyard_adapter.wire import ErrorReason, WireError, make_too_large_error

STOP_GRACE_SECONDS = TERMINATION_GRACE_SECONDS + 3.0
"""The time an invocation has to end after it was asked to stop; then its end is reported even if it still runs."""

MAX_HANG_SECONDS = 30.0
"""Limit of the time that an invocation may continue after its end was reported, while others wait for their turn."""

MAX_MESSAGE_CHARACTERS = 8000
"""Limit of the characters of an error message."""


async def await_outcome(
    work: "asyncio.Future[Mapping[str, Json]]",
    context: Context,
    request: ActionRequest,
    max_result_bytes: int = MAX_RESULT_BYTES,
    grace_seconds: float = STOP_GRACE_SECONDS,
) -> Outcome:
    """Wait for ``work`` and return its outcome; ask the invocation to stop when it times out.

    An invocation that ignores the request to stop for ``grace_seconds`` may still run when this returns.
    """
    started_at, started = time.time(), time.monotonic()
    loop = asyncio.get_running_loop()
    stopped = loop.create_future()

    def set_once() -> None:
        if not stopped.done():
            stopped.set_result(None)

    with context.stopping(lambda: loop.call_soon_threadsafe(set_once)):
        await asyncio.wait({work, stopped}, timeout=request.timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    if not work.done():
        context.stop(ErrorReason.TIMED_OUT)
        await asyncio.wait({work}, timeout=grace_seconds)
    seconds = time.monotonic() - started
    error = work.exception() if work.done() and not work.cancelled() else None
    if context.stopped is not None:
        return Outcome(started_at, seconds, error=build_stop_error(context.stopped, request))
    if error is None:
        try:
            result = check_values(work.result(), request.action.result, "result")
            size = len(encode(result))
            if size > max_result_bytes:
                return Outcome(started_at, seconds, error=make_too_large_error(size, max_result_bytes))
            return Outcome(started_at, seconds, result=result)
        except (InvalidValuesError, TypeError, ValueError, AttributeError) as invalid:
            error = invalid
    return Outcome(started_at, seconds, error=to_wire_error(error))


def to_wire_error(error: BaseException) -> WireError:
    """Return the error that a caller receives for an exception of the connector."""
    try:
        text = str(error)[:MAX_MESSAGE_CHARACTERS]
    except Exception:  # noqa: BLE001 - the connector's own code
        text = "the text of the exception cannot be read"
    if isinstance(error, ParameterError):
        return WireError(ErrorReason.INVALID_PARAMETERS, error.problem[:MAX_MESSAGE_CHARACTERS], error.field)
    if isinstance(error, FileTransferError):
        return WireError(ErrorReason.FILE_TRANSFER_FAILED, text)
    if isinstance(error, ActionError):
        return WireError(ErrorReason.ACTION_FAILED, text)
    return WireError(ErrorReason.CONNECTOR_CRASHED, f"{type(error).__name__}: {text}")


def build_stop_error(reason: ErrorReason, request: ActionRequest) -> WireError:
    """Return the error that a caller receives for an invocation that was stopped."""
    messages = {
        ErrorReason.TIMED_OUT: f"the action did not end within {request.timeout_seconds:g} s",
        ErrorReason.CANCELLED: "the action was cancelled",
        ErrorReason.INTERRUPTED: "the worker ended while the action ran",
    }
    return WireError(reason, messages[reason])
