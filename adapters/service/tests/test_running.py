# SPDX-License-Identifier: Apache-2.0
"""How invocations end."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from simyard_adapter.context import Context
from simyard_adapter.declarations import Interface
from simyard_adapter.invocations import ActionRequest
from simyard_adapter.limits import MAX_RESULT_BYTES
from simyard_adapter.running import STOP_GRACE_SECONDS, await_outcome, to_wire_error
from simyard_adapter.wire import ErrorReason

INTERFACE = Interface.from_json(
    {
        "actions": [
            {
                "name": "solve",
                "timeoutSeconds": 1,
                "result": [{"name": "n", "type": "number"}, {"name": "o", "type": "object"}],
            }
        ]
    }
)


async def end(
    returned: Any, *, cancel: bool = False, grace_seconds: float = STOP_GRACE_SECONDS
) -> tuple[ErrorReason | None, str]:
    """Run work that returns (or raises) this, or never ends (None)."""
    context = Context("id", "solve", Path("unused"), lambda _: None, lambda _: None)
    work: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    if isinstance(returned, Exception):
        work.set_exception(returned)
    elif returned is not None:
        work.set_result(returned)
    if cancel:
        await asyncio.to_thread(context.cancel)
    request = ActionRequest.read({"action": "solve", "timeoutSeconds": 0.05}, INTERFACE)
    outcome = await await_outcome(work, context, request, grace_seconds=grace_seconds)
    return (outcome.error.reason, outcome.error.message) if outcome.error else (None, str(outcome.result))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({"n": "much"}, "result.n"),
        ({"n": math.nan}, "result.n"),
        ({"o": {"x": {1, 2}}}, "result.o"),
        ({"m": 1}, "result.m: is not declared"),
        ([1], "is not declared"),
        (5, "TypeError"),
        (KeyError("deck"), "KeyError: 'deck'"),
    ],
)
async def test_a_connector_that_breaks_its_promise_has_crashed(returned: Any, message: str) -> None:
    reason, said = await end(returned)
    assert reason is ErrorReason.CONNECTOR_CRASHED
    assert message in said


async def test_a_result_too_large_is_an_error_that_says_what_to_do() -> None:
    reason, said = await end({"o": {"x": "x" * MAX_RESULT_BYTES}})
    assert reason is ErrorReason.RESULT_TOO_LARGE
    assert "the vendor can declare a result of the type file" in said


async def test_work_that_ignores_its_end_is_reported_all_the_same() -> None:
    assert await end(None, grace_seconds=0.05) == (ErrorReason.TIMED_OUT, "the action did not end within 0.05 s")
    assert await end(None, cancel=True, grace_seconds=0.05) == (ErrorReason.CANCELLED, "the action was cancelled")


async def test_a_result_that_fits_is_the_outcome() -> None:
    assert await end({"n": 1.5}) == (None, "{'n': 1.5}")


def test_an_exception_that_cannot_say_what_it_is_becomes_an_error_all_the_same() -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert to_wire_error(SilentError()).message == "SilentError: the text of the exception cannot be read"
