# SPDX-License-Identifier: Apache-2.0
"""The messages between adapters and the control plane over RabbitMQ (AMQP 0-9-1).

One *broker user* exists per WorkerPool (``pool-<uid>``) and per worker without a pool (``worker-<uid>``). It is the
trust boundary: it can only read its own queues, and only write events and replies under its own name.

The password of a user can be replaced while workers are connected. The *identity* of the user stays in the names of
queues and in routing keys. The *login* with which workers connect is the identity alone, or the identity, ``~`` and a
suffix that changes with each password. A worker learns a new login by :attr:`Request.CREDENTIALS`. A receiver that
checks the ``user_id`` of a message compares identities (:func:`parse_identity`).

=====================  ==================  ========================================================================
direction              exchange            routing key
=====================  ==================  ========================================================================
request to a worker    (default)           the worker's queue, ``simyard.worker.<user>.<worker uid>``
request to any worker  (default)           the pool's quorum queue, ``simyard.pool.<user>``
reply                  simyard.replies     ``reply.<requester>.<user>``
event                  simyard.events      ``<kind>.<user>.<worker uid>``
=====================  ==================  ========================================================================

Requests carry these properties: ``type`` (a :class:`Request`), ``message_id`` (the invocation id, under which an action
runs at most once on a worker), ``correlation_id``, ``reply_to`` (the requester's name, absent if no reply is expected),
and ``expiration`` if the requester stops waiting at some time. Bodies are JSON objects.

Every worker consumes its own queue. The pool's queue costs another channel and consumer. A worker consumes it only
after a request to do so (:attr:`Request.TAKE`), and only while the worker is free or was busy for a moment.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Mapping, Optional

from simyard_adapter.limits import MAX_RESULT_BYTES

CONTENT_TYPE = "application/json"
EVENTS_EXCHANGE = "simyard.events"
REPLIES_EXCHANGE = "simyard.replies"
REPLY = "reply"
"""The ``type`` of a reply."""
BEGUN = "begun"
"""The ``type`` of the message that precedes the reply: from here on the action may have run.

A worker sends it for actions from the pool's queue that are not idempotent, if the request asks for it. The broker
confirms it, on the channel that holds the request, before the action begins. So it arrives before any message that
another worker sends about the same request.
"""
LOGIN_SEPARATOR = "~"
"""The character between the identity of a broker user and the suffix of its login."""
ACTIVE_SECONDS = 30.0
"""The interval of ``active`` events while a worker runs Sync requests; the first request sends one at once."""


class Request(str, enum.Enum):
    """The ``type`` of a request. A comment gives its body and reply; any reply may be ``{"error": {..}}`` instead."""

    # {"action", "parameters", "mode", "timeoutSeconds"?, "tellBegun": bool?}; reply: {"worker", "result", "seconds"}
    # or {"error", "again": true} if another worker may have begun it: a requester without BEGUN may send it again
    ACTION = "action"
    # {"action", "parameters": {the fixed ones}, "names": [..], "points": [[a value for each name], ..], "first": index,
    # "timeoutSeconds"?, "retries"?, "watched": [results]?}: run a chunk of a study; no reply, but the event RESULT
    TASKS = "tasks"
    CANCEL = "cancel"  # {"invocation": id}; reply: {"cancelled": bool}
    GET_ATTRIBUTES = "get-attributes"  # {"names": [..]?}; reply: {"values": {..}, "observedAt": seconds}
    SET_ATTRIBUTES = "set-attributes"  # {"values": {..}}; reply as for GET_ATTRIBUTES
    # {"tailLines": n?, "invocation": id?} for the end of a log, {"after": position, "invocation": id?} for the next
    # lines after a position; reply: {"log": text, "next": position, "ended": bool}. The worker's log never ends; a
    # position in it is a number of lines. A position in the log of an Async action is a number of bytes; the stored
    # parts have the same bytes
    LOG = "log"
    DRAIN = "drain"  # {}: finish running actions, accept no new ones, then send DRAINED
    CREDENTIALS = "credentials"  # {"username", "password"}: connect with this login from now on; no reply
    TAKE = "take"  # {}: consume the pool's queue while free, until this process ends; no reply
    # The answer to the event FILES, with the same "request": {"request", "spec": {"bytes", "name", "mediaType"},
    # "status": {"present", "download" or "upload"}, "caCertificate"?} as a File of the API (no "spec" for the rows of a
    # chunk), or {"request", "error": {"message", "retryable", "absent"?}}; absent: the installation has no file store;
    # no reply
    FILES = "files"


class Event(str, enum.Enum):
    """The ``type`` of an event and the first word of its routing key; every body has ``worker`` (its name)."""

    # {"bootId", "adapterVersion", "interfaceDigest", "attributes": {..}, "observedAt", "accepted": [invocation ids],
    # "takes": bool}; accepted: the Async invocations of this worker whose RESULT is not sent yet; takes: this
    # process has received TAKE
    REGISTER = "register"
    ATTRIBUTES = "attributes"  # {"sequence", "values": {the changed ones}, "observedAt"}
    PROGRESS = "progress"  # {"invocation", "percent": 0..100?, "message"?}; the first one says that the action started
    # {"invocation"}: an Async action that is not idempotent is about to begin. The worker waits for the confirmation of
    # this event, then checks that its own queue exists: a worker whose queue is deleted begins no further action
    BEGUN = "begun"
    # {"invocation", "startedAt", "seconds", "result": {..} or "error": {..}}. Of a chunk: {"invocation", "chunk":
    # summary, "stored": bool} or "error"; stored: the store has the rows of this worker; summary:
    # :class:`simyard_adapter.chunks.Summary`
    RESULT = "result"
    # {"invocation", "parts": [{"file": address, "bytes"}]}: the stored parts of the log of an Async action, in order;
    # sent while the action runs and after its RESULT, and replaced by the next event about the same invocation
    LOG = "log"
    DRAINED = "drained"  # {}
    # {}: the worker runs a Sync request, or ran one since the last event; sent at most once in ACTIVE_SECONDS
    ACTIVE = "active"
    # {"request": id, "get": address} asks for a signed URL to download a file, {"request": id, "put": {"address",
    # "bytes", "parts"?, "name"?, "mediaType"?, "uploadId"?, "firstPart"?}} for signed URLs to upload one (``spec`` of a
    # File of the API), {"request": id, "part": {"invocation", "address", "bytes", "summary"}} for a signed URL to
    # upload the rows of a chunk. The answer is the request FILES; a worker without an answer asks again
    FILES = "files"


class ErrorReason(str, enum.Enum):
    """The reason why a request failed: the ``reason`` of an error."""

    INVALID_PARAMETERS = "InvalidParameters"
    UNKNOWN_ACTION = "UnknownAction"
    UNKNOWN_ATTRIBUTE = "UnknownAttribute"
    ACTION_FAILED = "ActionFailed"  # the simulation program refused or failed; the message is the program's
    CONNECTOR_CRASHED = "ConnectorCrashed"  # the connector raised an exception of another type than ActionError
    TIMED_OUT = "TimedOut"
    CANCELLED = "Cancelled"
    INTERRUPTED = "Interrupted"  # the worker died while the action ran, and the action is not declared idempotent
    DRAINING = "Draining"  # the action has not begun, and never will on this worker
    BUSY = "Busy"  # the action has not begun: too many invocations wait on this worker
    INVALID_REQUEST = "InvalidRequest"
    # the action has ended, but its result has more than MAX_RESULT_BYTES (limits.py)
    RESULT_TOO_LARGE = "ResultTooLarge"
    INVALID_RESULT = "InvalidResult"  # the action has ended, but its result does not fit the declaration
    FILE_TRANSFER_FAILED = "FileTransferFailed"  # a file of the action could not be downloaded or uploaded


@dataclass(frozen=True)
class WireError:
    """An error in a message: ``field`` is the path of the refused value; ``message`` does not repeat the path."""

    reason: ErrorReason
    message: str
    field: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the value of ``error`` in a reply or a result."""
        data = {"reason": self.reason.value, "message": self.message}
        if self.field:
            data["field"] = self.field
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "WireError":
        """Read the value of ``error``; a reason that this version does not know becomes ``ActionFailed``."""
        try:
            reason = ErrorReason(data.get("reason"))
        except ValueError:
            reason = ErrorReason.ACTION_FAILED
        return cls(reason, str(data.get("message") or ""), str(data.get("field") or ""))


def make_too_large_error(size: int, limit: int = MAX_RESULT_BYTES) -> WireError:
    """Return the error of an action whose result has ``size`` bytes."""
    return WireError(
        ErrorReason.RESULT_TOO_LARGE,
        f"the result has {size} bytes, at most {limit} are accepted: the vendor can declare a result of the "
        "type file for large data",
    )


def name_pool_user(pool_uid: str) -> str:
    """Return the broker user of a WorkerPool."""
    return f"pool-{pool_uid}"


def name_standalone_user(worker_uid: str) -> str:
    """Return the broker user of a worker without a pool."""
    return f"worker-{worker_uid}"


def parse_identity(login: str) -> str:
    """Return the identity of a login: the part before :data:`LOGIN_SEPARATOR`."""
    return login.partition(LOGIN_SEPARATOR)[0]


def name_worker_queue(user: str, worker_uid: str) -> str:
    """Return the name of a worker's own queue."""
    return f"simyard.worker.{user}.{worker_uid}"


def name_pool_queue(user: str) -> str:
    """Return the name of the queue that all workers of a pool share; each worker receives one request at a time."""
    return f"simyard.pool.{user}"


def make_reply_key(requester: str, user: str) -> str:
    """Return the routing key of a worker's reply to a requester."""
    return f"reply.{requester}.{user}"


def make_event_key(kind: Event, user: str, worker_uid: str) -> str:
    """Return the routing key of an event."""
    return f"{kind.value}.{user}.{worker_uid}"


@dataclass(frozen=True)
class EventKey:
    """The parts of an event's routing key."""

    kind: Event
    user: str
    worker_uid: str


def parse_event_key(key: str) -> Optional[EventKey]:
    """Return the parts of an event's routing key, or None if the key is not valid."""
    words = key.split(".")
    if len(words) != 3:
        return None
    try:
        return EventKey(Event(words[0]), words[1], words[2])
    except ValueError:
        return None
