"""The messages of workers, as types.

Nothing here is trusted but the sender, whom the broker vouches for (``user_id``). A field that cannot be is treated as
absent where the platform knows the answer itself (times, durations, progress); a body that cannot be read at all is
refused. The one exception is the result of an action: somebody waits for it, so a result that cannot be read becomes
an error of the action that it names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from simyard.guest.reading import Refusal, RefusedError, read_object
from simyard.guest.text import printable, printable_line
from simyard.guest.values import ClaimedAttributes, ClaimedResult
from simyard_adapter.declarations import Json
from simyard_adapter.limits import KIB, MAX_ATTRIBUTES_BYTES, MAX_ENVELOPE_BYTES, MAX_LOG_BYTES, MAX_RESULT_BYTES
from simyard_adapter.wire import Event, Reason, WireError, result_too_large

MAX_EVENT_BYTES: Mapping[Event, int] = {
    Event.REGISTER: MAX_ATTRIBUTES_BYTES + MAX_ENVELOPE_BYTES,
    Event.ATTRIBUTES: MAX_ATTRIBUTES_BYTES + MAX_ENVELOPE_BYTES,
    Event.BEGUN: 4 * KIB,
    Event.PROGRESS: MAX_ENVELOPE_BYTES,
    Event.RESULT: MAX_RESULT_BYTES + MAX_ENVELOPE_BYTES,
    Event.DRAINED: 4 * KIB,
    Event.ACTIVE: 4 * KIB,
}
MAX_REPLY_BYTES = max(MAX_RESULT_BYTES, MAX_ATTRIBUTES_BYTES, MAX_LOG_BYTES) + MAX_ENVELOPE_BYTES
MAX_VERSION_CHARACTERS = 64
MAX_PROGRESS_CHARACTERS = 1024
MAX_ERROR_CHARACTERS = 16_384
MAX_FIELD_CHARACTERS = 256
MAX_NAME_CHARACTERS = 253
MAX_LATEST_SECONDS = 2.0**33
"""The latest time that is read, in seconds since the epoch: the year 2242. Who knows more bounds it further."""
MAX_DURATION_SECONDS = 1e9
_INVOCATION = re.compile(rb'"invocation"\s*:\s*"([0-9A-Za-z.-]{1,80})"')
_HEAD_BYTES = 4 * KIB


@dataclass(frozen=True, slots=True)
class Registered:
    """An adapter has started, or has a new connection; ``takes``: it was told to take from its pool's queue."""

    adapter_version: str
    takes: bool
    attributes: ClaimedAttributes


@dataclass(frozen=True, slots=True)
class AttributesChanged:
    """The attributes that changed."""

    attributes: ClaimedAttributes


@dataclass(frozen=True, slots=True)
class Begun:
    """An invocation that must not run twice begins."""

    invocation: str


@dataclass(frozen=True, slots=True)
class Progressed:
    """How far an invocation is; ``percent`` is 0 to 100, None when it is not known."""

    invocation: str
    percent: int | None
    message: str | None


@dataclass(frozen=True, slots=True)
class Resulted:
    """How an invocation ended; ``started_at`` in seconds since the epoch, None when it did not begin."""

    invocation: str
    started_at: float | None
    seconds: float | None
    outcome: ClaimedResult | WireError


@dataclass(frozen=True, slots=True)
class Drained:
    """The worker has finished what it ran and takes nothing new."""


@dataclass(frozen=True, slots=True)
class Active:
    """The worker runs Sync requests."""


EventMessage = Registered | AttributesChanged | Begun | Progressed | Resulted | Drained | Active


def read_event(kind: Event, body: bytes) -> EventMessage:
    """Return the message of an event.

    Raises:
        RefusedError: it cannot be read.
    """
    try:
        read = read_object(body, MAX_EVENT_BYTES[kind])
    except RefusedError as refused:
        if kind is Event.RESULT and (named := _INVOCATION.search(body[:_HEAD_BYTES])) is not None:
            return Resulted(named[1].decode(), None, None, _result_error(refused, len(body)))
        raise
    match kind:
        case Event.REGISTER:
            version = printable_line(_text(read.get("adapterVersion")), MAX_VERSION_CHARACTERS)
            return Registered(version, read.get("takes") is True, _attributes(read.get("attributes")))
        case Event.ATTRIBUTES:
            return AttributesChanged(_attributes(read.get("values")))
        case Event.BEGUN:
            return Begun(_invocation(read))
        case Event.PROGRESS:
            message = read.get("message")
            text = printable_line(message, MAX_PROGRESS_CHARACTERS) if isinstance(message, str) else None
            return Progressed(_invocation(read), _percent(read.get("percent")), text)
        case Event.RESULT:
            started_at = _number(read.get("startedAt"), MAX_LATEST_SECONDS)
            return Resulted(_invocation(read), started_at, _seconds(read), _outcome(read))
        case Event.DRAINED:
            return Drained()
        case Event.ACTIVE:
            return Active()


@dataclass(frozen=True, slots=True)
class Reply:
    """A worker's reply to a request; each request reads the part that it asked for.

    ``error`` is set when the worker answered with one; ``again``: another worker may be asked.
    """

    error: WireError | None
    again: bool
    worker: str
    seconds: float | None
    result: ClaimedResult
    attributes: ClaimedAttributes
    log: str


def read_reply(body: bytes) -> Reply:
    """Return the reply.

    Raises:
        RefusedError: it cannot be read.
    """
    read = read_object(body, MAX_REPLY_BYTES)
    error = read.get("error")
    return Reply(
        error=_error(error) if isinstance(error, dict) else None,
        again=read.get("again") is True,
        worker=printable_line(_text(read.get("worker")), MAX_NAME_CHARACTERS),
        seconds=_seconds(read),
        result=ClaimedResult(read.get("result")),
        attributes=_attributes(read.get("values")),
        log=printable(_text(read.get("log"))),
    )


def _outcome(read: Mapping[str, Json]) -> ClaimedResult | WireError:
    error = read.get("error")
    return _error(error) if isinstance(error, dict) else ClaimedResult(read.get("result"))


def _error(read: Mapping[str, Json]) -> WireError:
    """The reason is one of ours; the rest is text of the program that failed."""
    named = WireError.from_json({"reason": _text(read.get("reason"))})
    message = printable(_text(read.get("message")), MAX_ERROR_CHARACTERS)
    return WireError(named.reason, message, printable_line(_text(read.get("field")), MAX_FIELD_CHARACTERS))


def _result_error(refused: RefusedError, size: int) -> WireError:
    if refused.refusal is Refusal.TOO_LARGE:
        return result_too_large(size)
    return WireError(Reason.INVALID_RESULT, f"the worker's result cannot be read: {refused.problem}")


def _attributes(value: Json) -> ClaimedAttributes:
    return ClaimedAttributes(value if isinstance(value, dict) else {})


def _invocation(read: Mapping[str, Json]) -> str:
    invocation = read.get("invocation")
    if not isinstance(invocation, str) or not invocation:
        raise RefusedError(Refusal.INVALID, "the message names no invocation")
    return invocation


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _percent(value: Json) -> int | None:
    number = _number(value, math.inf)
    return None if number is None else int(min(100.0, number))


def _seconds(read: Mapping[str, Json]) -> float | None:
    return _number(read.get("seconds"), MAX_DURATION_SECONDS)


def _number(value: Json, largest: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= largest:
        return None
    return float(value)
