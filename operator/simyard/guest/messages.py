# SPDX-License-Identifier: Apache-2.0
"""Reads the messages of workers into types.

The platform trusts only the sender of a message, which the broker verifies (``user_id``), and not its content. If a
time, a duration or a progress is impossible, the reader returns None for it. It refuses a body that it cannot read,
except the result of an action: a caller waits for this result, so the reader returns an error of the action instead.
"""

from __future__ import annotations

import base64
import builtins
import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from simyard.api.files import FileUploadSpec
from simyard.api.study_record import MAX_RECORD_BYTES
from simyard.guest.chunks import ChunkSummary, read_summary
from simyard.guest.reading import Refusal, RefusedError, read_object
from simyard.guest.text import make_printable, make_printable_line, make_printable_value
from simyard.guest.values import ClaimedAttributes, ClaimedResult
from simyard_adapter.declarations import Json
from simyard_adapter.digests import MAX_PARTS, PART_BYTES, is_address, is_address_of_parts
from simyard_adapter.file_values import FileReference, FileValueError
from simyard_adapter.limits import (
    KIB,
    MAX_ATTRIBUTES_BYTES,
    MAX_ENVELOPE_BYTES,
    MAX_LOG_BYTES,
    MAX_LOG_PARTS,
    MAX_RESULT_BYTES,
)
from simyard_adapter.wire import ErrorReason, Event, WireError, make_too_large_error

MAX_EVENT_BYTES: Mapping[Event, int] = {
    Event.REGISTER: MAX_ATTRIBUTES_BYTES + MAX_ENVELOPE_BYTES,
    Event.ATTRIBUTES: MAX_ATTRIBUTES_BYTES + MAX_ENVELOPE_BYTES,
    Event.BEGUN: 4 * KIB,
    Event.PROGRESS: MAX_ENVELOPE_BYTES,
    Event.RESULT: MAX_RESULT_BYTES + MAX_ENVELOPE_BYTES,
    Event.LOG: 32 * KIB,
    Event.DRAINED: 4 * KIB,
    Event.ACTIVE: 4 * KIB,
    Event.FILES: MAX_PARTS * 70 + MAX_ENVELOPE_BYTES,
}
MAX_REPLY_BYTES = max(MAX_RESULT_BYTES, MAX_ATTRIBUTES_BYTES, MAX_LOG_BYTES) + MAX_ENVELOPE_BYTES
MAX_VERSION_CHARACTERS = 64
MAX_PROGRESS_CHARACTERS = 1024
MAX_ERROR_CHARACTERS = 16_384
MAX_FOREIGN_ERROR_CHARACTERS = 500
MAX_FIELD_CHARACTERS = 256
MAX_NAME_CHARACTERS = 253
MAX_LATEST_SECONDS = 2.0**33
"""Latest accepted time, in seconds since the epoch: the year 2242. Callers may set an earlier limit."""
MAX_DURATION_SECONDS = 1e9
_INVOCATION = re.compile(rb'"invocation"\s*:\s*"([0-9A-Za-z.-]{1,80})"')
_REQUEST = re.compile("[0-9a-f]{32}")
_HEAD_BYTES = 4 * KIB


@dataclass(frozen=True, slots=True)
class Registered:
    """Registration of an adapter that has started or reconnected. ``takes`` is true if it consumes the pool's queue."""

    adapter_version: str
    takes: bool
    attributes: ClaimedAttributes


@dataclass(frozen=True, slots=True)
class AttributesChanged:
    """Report of changed attributes."""

    attributes: ClaimedAttributes


@dataclass(frozen=True, slots=True)
class Begun:
    """Report that the worker begins an invocation, which must not run twice."""

    invocation: str


@dataclass(frozen=True, slots=True)
class Progressed:
    """Progress of an invocation; ``percent`` is 0 to 100, or None if it is unknown."""

    invocation: str
    percent: int | None
    message: str | None


@dataclass(frozen=True, slots=True)
class Resulted:
    """The end of an invocation. ``started_at`` is in seconds since the epoch; None if the invocation did not begin."""

    invocation: str
    started_at: float | None
    seconds: float | None
    outcome: ClaimedResult | WireError


@dataclass(frozen=True, slots=True)
class LogStored:
    """Report of the stored parts of the log of an invocation, in order."""

    invocation: str
    parts: tuple[FileReference, ...]


@dataclass(frozen=True, slots=True)
class Drained:
    """Report that the worker has finished its actions and accepts no new actions."""


@dataclass(frozen=True, slots=True)
class Active:
    """Report that the worker runs Sync requests."""


@dataclass(frozen=True, slots=True)
class DownloadWanted:
    """Question of a worker for a signed URL that downloads a file; ``request`` is the question's id."""

    request: str
    address: str


@dataclass(frozen=True, slots=True)
class UploadWanted:
    """Question of a worker for signed URLs that upload a file."""

    request: str
    upload: FileUploadSpec


@dataclass(frozen=True, slots=True)
class PartWanted:
    """Question of a worker for a signed URL that uploads the rows of a chunk.

    ``content`` has the rows themselves if the platform has asked for them because it has no file store.
    """

    request: str
    invocation: str
    address: str
    bytes: int
    summary: ChunkSummary
    content: builtins.bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ChunkEnded:
    """The end of a chunk whose rows are in the file store. ``stored`` is True if this worker stored them.

    If the worker has no rows, it sends an error instead (:class:`Resulted`).
    """

    invocation: str
    stored: bool
    summary: ChunkSummary


EventMessage = (
    Registered
    | AttributesChanged
    | Begun
    | Progressed
    | Resulted
    | ChunkEnded
    | LogStored
    | Drained
    | Active
    | DownloadWanted
    | UploadWanted
    | PartWanted
)


ActionMessage = Begun | Progressed | Resulted | LogStored
"""A message about an invocation of an action."""


def read_event(kind: Event, body: bytes) -> EventMessage:
    """Return the message of an event.

    Raises:
        RefusedError: The body cannot be read.
    """
    try:
        read = read_object(body, MAX_EVENT_BYTES[kind])
    except RefusedError as refused:
        if kind is Event.RESULT and (named := _INVOCATION.search(body[:_HEAD_BYTES])) is not None:
            return Resulted(named[1].decode(), None, None, _make_result_error(refused, len(body)))
        raise
    match kind:
        case Event.REGISTER:
            version = make_printable_line(_read_text(read.get("adapterVersion")), MAX_VERSION_CHARACTERS)
            return Registered(version, read.get("takes") is True, _read_attributes(read.get("attributes")))
        case Event.ATTRIBUTES:
            return AttributesChanged(_read_attributes(read.get("values")))
        case Event.BEGUN:
            return Begun(_read_invocation(read))
        case Event.PROGRESS:
            message = read.get("message")
            text = make_printable_line(message, MAX_PROGRESS_CHARACTERS) if isinstance(message, str) else None
            return Progressed(_read_invocation(read), _read_percent(read.get("percent")), text)
        case Event.RESULT if "chunk" in read:
            return ChunkEnded(_read_invocation(read), read.get("stored") is True, read_summary(read["chunk"]))
        case Event.RESULT:
            started_at = _read_number(read.get("startedAt"), MAX_LATEST_SECONDS)
            return Resulted(_read_invocation(read), started_at, _read_seconds(read), _read_outcome(read))
        case Event.LOG:
            return LogStored(_read_invocation(read), _read_parts(read.get("parts")))
        case Event.DRAINED:
            return Drained()
        case Event.ACTIVE:
            return Active()
        case Event.FILES:
            return _read_file_question(read)


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply of a worker to a request. Only the fields that belong to the kind of request are set.

    Attributes:
        error: Error of the worker, if the answer is an error.
        again: True if the request may be sent to another worker.
        worker: Name of the worker.
        seconds: Duration of the action.
        result: Result of the action.
        attributes: Attributes of the worker.
        log: Text of the log.
        next: Position in the log after the text; None from an adapter that knows no positions.
        ended: True if the log will have no further lines.
    """

    error: WireError | None
    again: bool
    worker: str
    seconds: float | None
    result: ClaimedResult
    attributes: ClaimedAttributes
    log: str
    next: int | None = None
    ended: bool = False


def read_reply(body: bytes) -> Reply:
    """Return the reply in a body.

    Raises:
        RefusedError: The body cannot be read.
    """
    read = read_object(body, MAX_REPLY_BYTES)
    error = read.get("error")
    return Reply(
        error=_read_error(error) if isinstance(error, dict) else None,
        again=read.get("again") is True,
        worker=make_printable_line(_read_text(read.get("worker")), MAX_NAME_CHARACTERS),
        seconds=_read_seconds(read),
        result=ClaimedResult(read.get("result")),
        attributes=_read_attributes(read.get("values")),
        log=make_printable(_read_text(read.get("log"))),
        next=_read_position(read.get("next")),
        ended=read.get("ended") is True,
    )


def read_foreign_result(body: bytes) -> dict[str, Json]:
    """Return the result of an action from a service adapter of Cloud4E; {} for an empty body.

    Such an adapter declares no results, so the function accepts all types. Length, depth and text have the same limits
    as messages of workers.

    Raises:
        RefusedError: the result cannot be read.
    """
    if not body:
        return {}
    read = read_object(body, MAX_RESULT_BYTES)
    return {make_printable(name): make_printable_value(value) for name, value in read.items()}


def read_foreign_error(body: bytes) -> str:
    """Return the error text of a service adapter of Cloud4E for a failed action, on one line."""
    text = body[: 4 * MAX_FOREIGN_ERROR_CHARACTERS].decode(errors="replace")
    return make_printable_line(text, MAX_FOREIGN_ERROR_CHARACTERS)


def _read_file_question(read: Mapping[str, Json]) -> DownloadWanted | UploadWanted | PartWanted:
    request, address = read.get("request"), read.get("get")
    if not isinstance(request, str) or not _REQUEST.fullmatch(request):
        raise RefusedError(Refusal.INVALID, "the question about a file has no valid id")
    if isinstance(part := read.get("part"), dict):
        return _read_part_question(request, part)
    if isinstance(address, str) and is_address(address):
        return DownloadWanted(request, address)
    try:
        return UploadWanted(request, FileUploadSpec.model_validate(read.get("put")))
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"the question about a file is invalid: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise RefusedError(Refusal.INVALID, make_printable(problem, MAX_FOREIGN_ERROR_CHARACTERS)) from None


def _read_part_question(request: str, part: Mapping[str, Json]) -> PartWanted:
    address, size = part.get("address"), part.get("bytes")
    if not isinstance(address, str) or not is_address(address) or is_address_of_parts(address):
        raise RefusedError(Refusal.INVALID, "the question about the rows of a chunk has no valid address")
    if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= PART_BYTES:
        raise RefusedError(Refusal.INVALID, "the question about the rows of a chunk has no valid size")
    summary = read_summary(part.get("summary"))
    return PartWanted(request, _read_invocation(part), address, size, summary, _read_content(part, address))


def _read_content(part: Mapping[str, Json], address: str) -> bytes:
    """Return the rows in a question, which must have the address; empty if there are none."""
    if (text := part.get("content")) is None:
        return b""
    try:
        content = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except ValueError:
        content = b""
    if not content or len(content) > MAX_RECORD_BYTES or f"sha256:{hashlib.sha256(content).hexdigest()}" != address:
        raise RefusedError(Refusal.INVALID, "the rows of a chunk arrived damaged, or are too many")
    return content


def _read_outcome(read: Mapping[str, Json]) -> ClaimedResult | WireError:
    error = read.get("error")
    return _read_error(error) if isinstance(error, dict) else ClaimedResult(read.get("result"))


def _read_parts(value: Json) -> tuple[FileReference, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= MAX_LOG_PARTS:
        raise RefusedError(Refusal.INVALID, f"the report of a log must have 1 to {MAX_LOG_PARTS} parts")
    try:
        return tuple(FileReference.from_json(item) for item in value)
    except FileValueError as error:
        raise RefusedError(Refusal.INVALID, f"a part of a log is invalid: {error.field}: {error.problem}") from None


def _read_error(read: Mapping[str, Json]) -> WireError:
    """Return the error in a message, with a known reason and only printable text."""
    named = WireError.from_json({"reason": _read_text(read.get("reason"))})
    message = make_printable(_read_text(read.get("message")), MAX_ERROR_CHARACTERS)
    return WireError(named.reason, message, make_printable_line(_read_text(read.get("field")), MAX_FIELD_CHARACTERS))


def _make_result_error(refused: RefusedError, size: int) -> WireError:
    if refused.refusal is Refusal.TOO_LARGE:
        return make_too_large_error(size)
    return WireError(ErrorReason.INVALID_RESULT, f"the worker's result cannot be read: {refused.problem}")


def _read_attributes(value: Json) -> ClaimedAttributes:
    return ClaimedAttributes(value if isinstance(value, dict) else {})


def _read_invocation(read: Mapping[str, Json]) -> str:
    invocation = read.get("invocation")
    if not isinstance(invocation, str) or not invocation:
        raise RefusedError(Refusal.INVALID, "the message names no invocation")
    return invocation


def _read_text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _read_position(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def _read_percent(value: Json) -> int | None:
    number = _read_number(value, math.inf)
    return None if number is None else int(min(100.0, number))


def _read_seconds(read: Mapping[str, Json]) -> float | None:
    return _read_number(read.get("seconds"), MAX_DURATION_SECONDS)


def _read_number(value: Json, largest: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= largest:
        return None
    return float(value)
