"""What adapters and the control plane say to each other over RabbitMQ (AMQP 0-9-1).

One *broker user* exists per WorkerPool (``pool-<uid>``) and per worker that stands alone (``worker-<uid>``). It is the
boundary of trust: it can read its own queues, and write events and replies under its own name only.

Its password can be replaced while workers are connected. The *identity* of the user stays in the names of queues and in
routing keys. The *login* under which workers connect is the identity, or the identity, ``~`` and a suffix that is new
for each password. A worker learns a new login by :attr:`Request.CREDENTIALS`. Whoever checks the ``user_id`` of a
message compares identities (:func:`identity_of`).

=====================  ==================  ========================================================================
direction              exchange            routing key
=====================  ==================  ========================================================================
request to a worker    (default)           the worker's queue, ``simyard.worker.<user>.<worker uid>``
request to any worker  (default)           the pool's quorum queue, ``simyard.pool.<user>``
reply                  simyard.replies     ``reply.<requester>.<user>``
event                  simyard.events      ``<kind>.<user>.<worker uid>``
=====================  ==================  ========================================================================

Requests carry the properties ``type`` (a :class:`Request`), ``message_id`` (the invocation id, the key under which an
action runs at most once on a worker), ``correlation_id`` and ``reply_to`` (the requester's name, absent where no reply
is awaited), and ``expiration`` where nobody waits any longer after that time. Bodies are JSON objects.

Every worker consumes its own queue. The pool's queue, which costs a channel and a consumer more, it consumes only once
it was told to (:attr:`Request.TAKE`), and then while it is free.
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
"""The ``type`` of what comes before the reply of an action from the pool's queue that is not idempotent, if the request
asks for it: from here on it may have run. It is confirmed by the broker, on the channel that holds the request, before
the action begins; so it comes before anything that another worker says of the same request."""
LOGIN_SEPARATOR = "~"
"""Stands between the identity of a broker user and the suffix of one of its logins."""
ACTIVE_SECONDS = 30.0
"""While a worker runs Sync requests it says so this often, beginning with the first, and no more."""


class Request(str, enum.Enum):
    """The ``type`` of a request, its body, and the reply; any reply may be ``{"error": {..}}`` instead."""

    # {"action", "parameters", "mode", "timeoutSeconds"?, "tellBegun": bool?}; reply: {"worker", "result", "seconds"}
    # or {"error", "again": true} when another worker may have begun it: who has not heard BEGUN may send it again
    ACTION = "action"
    CANCEL = "cancel"  # {"invocation": id}; reply: {"cancelled": bool}
    GET_ATTRIBUTES = "get-attributes"  # {"names": [..]?}; reply: {"values": {..}, "observedAt": seconds}
    SET_ATTRIBUTES = "set-attributes"  # {"values": {..}}; reply as for GET_ATTRIBUTES
    LOG = "log"  # {"tailLines": n?, "invocation": id?}; reply: {"log": text}
    DRAIN = "drain"  # {}: finish what runs, take nothing new, then say DRAINED
    CREDENTIALS = "credentials"  # {"username", "password"}: connect with this login from now on; no reply
    TAKE = "take"  # {}: from now on, for as long as this process lives, take from the pool's queue while free; no reply


class Event(str, enum.Enum):
    """The ``type`` of an event and the first word of its routing key; every body has ``worker`` (its name)."""

    # {"bootId", "adapterVersion", "interfaceDigest", "attributes": {..}, "observedAt", "accepted": [invocation ids],
    # "takes": bool}; accepted: the Async invocations that this worker holds and whose RESULT is to come; takes: this
    # process was told TAKE
    REGISTER = "register"
    ATTRIBUTES = "attributes"  # {"sequence", "values": {the changed ones}, "observedAt"}
    PROGRESS = "progress"  # {"invocation", "percent": 0..100?, "message"?}; the first one says that it started
    BEGUN = "begun"  # {"invocation"}: an Async action that is not idempotent begins, once its worker has seen that its
    # own queue still exists after the broker confirmed this; a worker whose queue is deleted begins nothing more
    RESULT = "result"  # {"invocation", "startedAt", "seconds", "result": {..} or "error": {..}}
    DRAINED = "drained"  # {}
    ACTIVE = "active"  # {}: it runs a Sync request, or has run one since the last; once in ACTIVE_SECONDS


class Reason(str, enum.Enum):
    """Why a request failed: the ``reason`` of an error."""

    INVALID_PARAMETERS = "InvalidParameters"
    UNKNOWN_ACTION = "UnknownAction"
    UNKNOWN_ATTRIBUTE = "UnknownAttribute"
    ACTION_FAILED = "ActionFailed"  # the simulation program refused or failed; the message is its own
    CONNECTOR_CRASHED = "ConnectorCrashed"  # the connector raised something it does not declare
    TIMED_OUT = "TimedOut"
    CANCELLED = "Cancelled"
    INTERRUPTED = "Interrupted"  # the worker died while it ran, and the action is not declared idempotent
    DRAINING = "Draining"  # it was not begun, and never will be on this worker
    BUSY = "Busy"  # it was not begun: too many invocations wait for their turn on this worker
    INVALID_REQUEST = "InvalidRequest"
    RESULT_TOO_LARGE = "ResultTooLarge"  # it was done, but its result has more than MAX_RESULT_BYTES (limits.py)
    INVALID_RESULT = "InvalidResult"  # it was done, but its result is not what the service declares


@dataclass(frozen=True)
class WireError:
    """An error as it travels: ``field`` is the path of the value that was refused; the message is without it."""

    reason: Reason
    message: str
    field: str = ""

    def to_json(self) -> dict[str, Any]:
        """The value of ``error`` in a reply or a result."""
        data = {"reason": self.reason.value, "message": self.message}
        if self.field:
            data["field"] = self.field
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "WireError":
        """Read the value of ``error``; a reason this version does not know reads as ``ActionFailed``."""
        try:
            reason = Reason(data.get("reason"))
        except ValueError:
            reason = Reason.ACTION_FAILED
        return cls(reason, str(data.get("message") or ""), str(data.get("field") or ""))


def result_too_large(size: int) -> WireError:
    """Return the error of an action whose result has ``size`` bytes."""
    return WireError(
        Reason.RESULT_TOO_LARGE,
        f"the result has {size} bytes, at most {MAX_RESULT_BYTES} are accepted: have the program write large data to a "
        "store of its own, such as an S3 bucket, and return where it is",
    )


def pool_user(pool_uid: str) -> str:
    """The broker user of a WorkerPool."""
    return f"pool-{pool_uid}"


def standalone_user(worker_uid: str) -> str:
    """The broker user of a worker without a pool."""
    return f"worker-{worker_uid}"


def identity_of(login: str) -> str:
    """Return the identity of a login: the part before :data:`LOGIN_SEPARATOR`."""
    return login.partition(LOGIN_SEPARATOR)[0]


def worker_queue(user: str, worker_uid: str) -> str:
    """The queue of one worker."""
    return f"simyard.worker.{user}.{worker_uid}"


def pool_queue(user: str) -> str:
    """The queue that all workers of a pool share; each takes one request at a time."""
    return f"simyard.pool.{user}"


def reply_key(requester: str, user: str) -> str:
    """The routing key under which a worker answers a requester."""
    return f"reply.{requester}.{user}"


def event_key(kind: Event, user: str, worker_uid: str) -> str:
    """The routing key of an event."""
    return f"{kind.value}.{user}.{worker_uid}"


@dataclass(frozen=True)
class EventKey:
    """A parsed routing key of an event."""

    kind: Event
    user: str
    worker_uid: str


def parse_event_key(key: str) -> Optional[EventKey]:
    """The parts of an event's routing key, or None if it is not one."""
    words = key.split(".")
    if len(words) != 3:
        return None
    try:
        return EventKey(Event(words[0]), words[1], words[2])
    except ValueError:
        return None
