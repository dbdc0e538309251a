"""What an adapter knows of the invocations it was asked for, and what it decides about them; no I/O."""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional

from aiormq import spec
from aiormq.abc import DeliveredMessage

from simyard_adapter.context import Context
from simyard_adapter.declarations import Action, ActionMode, Interface, InvalidValuesError, Json, check_values
from simyard_adapter.transport import Session
from simyard_adapter.wire import Reason, WireError

REMEMBERED_REPLIES = 300
REMEMBERED_BYTES = 8 * 2**20
REQUESTER_LIMIT = 100
REPLY_DEADLINE_SECONDS = 60.0
"""How long a reply without an expiration is offered to a broker that cannot be reached."""


class RefusedError(Exception):
    """A request that is answered with an error and not run."""

    def __init__(self, reason: Reason, message: str, field: str = "") -> None:
        super().__init__(message)
        self.error = WireError(reason, message, field)

    @classmethod
    def of_values(cls, invalid: InvalidValuesError) -> "RefusedError":
        """Values that do not fit: the first one's path is the field, the others stand in the message."""
        first, *others = invalid.errors
        return cls(Reason.INVALID_PARAMETERS, "; ".join([first.problem, *map(str, others)]), first.path)

    def reply(self) -> dict[str, Any]:
        """The body of the reply."""
        return Outcome(error=self.error).to_json()


class UncertainError(RefusedError):
    """A request that is not run because another worker may have begun it; who knows better may send it again."""

    def __init__(self, *, again: bool) -> None:
        """``again``: whoever begins such a request tells its requester, who therefore knows."""
        super().__init__(Reason.INTERRUPTED, "it may have been begun before, and it is not idempotent")
        self._again = again

    def reply(self) -> dict[str, Any]:
        """See :class:`RefusedError`."""
        return {**super().reply(), "again": True} if self._again else super().reply()


@dataclass(frozen=True)
class Delivery:
    """A request as it came. ``deadline`` (loop time) is when nobody waits any longer, counted from its receipt."""

    message: DeliveredMessage
    session: Session
    from_pool: bool
    received: float

    @property
    def id(self) -> str:
        """The invocation's id."""
        return self.properties.message_id or ""

    @property
    def properties(self) -> spec.Basic.Properties:
        """What came with the body."""
        return self.message.header.properties

    @property
    def redelivered(self) -> bool:
        """It was delivered before, to this adapter or another one, which did not acknowledge it."""
        return bool(self.message.redelivered)

    @property
    def expires(self) -> Optional[float]:
        """When it expires (loop time), if it does."""
        milliseconds = self.properties.expiration  # the broker refuses one that is no number
        return self.received + int(milliseconds) / 1000 if milliseconds else None

    @property
    def reply_deadline(self) -> float:
        """Until when a reply is of use (loop time)."""
        return self.expires or self.received + REPLY_DEADLINE_SECONDS

    @property
    def requester(self) -> Optional[str]:
        """Who waits for the reply; None if nobody does who can be answered."""
        name = self.properties.reply_to
        return name if name and "." not in name and len(name) <= REQUESTER_LIMIT else None

    def body(self) -> dict[str, Any]:
        """The JSON object that it holds.

        Raises:
            RefusedError: it holds none.
        """
        try:
            body = json.loads(self.message.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise RefusedError(Reason.INVALID_REQUEST, f"the body is not JSON: {error}") from None
        if not isinstance(body, dict):
            raise RefusedError(Reason.INVALID_REQUEST, "the body is not a JSON object")
        return body


@dataclass(frozen=True)
class ActionRequest:
    """An action that was asked for, checked against the interface."""

    action: Action
    parameters: Mapping[str, Json]
    mode: ActionMode
    timeout_seconds: float
    tells_begun: bool = False

    @classmethod
    def read(cls, body: Mapping[str, Any], interface: Interface) -> "ActionRequest":
        """Read the body of a request.

        Raises:
            RefusedError: the action is unknown, or a parameter does not fit.
        """
        action = interface.action(str(body.get("action")))
        if action is None:
            names = ", ".join(item.name for item in interface.actions) or "none"
            raise RefusedError(Reason.UNKNOWN_ACTION, f"no action {body.get('action')!r}; there are: {names}", "action")
        given = {} if body.get("parameters") is None else body["parameters"]
        if not isinstance(given, dict):
            raise RefusedError(Reason.INVALID_PARAMETERS, "must be an object", "parameters")
        try:
            parameters = check_values(given, action.parameters, "parameters")
            mode = ActionMode(body.get("mode") or action.mode)
            timeout = min(float(body.get("timeoutSeconds") or action.timeout_seconds), action.timeout_seconds)
            if not timeout > 0:
                raise ValueError("timeoutSeconds must be positive")
        except InvalidValuesError as error:
            raise RefusedError.of_values(error) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise RefusedError(Reason.INVALID_REQUEST, str(error)) from None
        return cls(action, parameters, mode, timeout, body.get("tellBegun") is True)


@dataclass(eq=False)
class Invocation:
    """One accepted invocation. ``deliveries`` are the Sync requests to be answered: more than one after a reconnect."""

    id: str
    request: ActionRequest
    context: Context
    deliveries: list[Delivery] = field(default_factory=list)
    running: bool = False

    @property
    def synchronous(self) -> bool:
        """Somebody waits for the reply."""
        return self.request.mode is ActionMode.SYNC

    @property
    def tells_begun(self) -> bool:
        """Its requester is told before it begins, because it must not begin twice and others may be given it."""
        latest = self.deliveries[-1] if self.deliveries else None
        wanted = self.request.tells_begun and not self.request.action.idempotent
        return wanted and latest is not None and latest.from_pool and latest.requester is not None

    @property
    def runs_again(self) -> bool:
        """It was interrupted by the adapter's end and will be run again, by the next adapter or another worker."""
        return self.context.stopped is Reason.INTERRUPTED and self.request.action.idempotent

    @property
    def expires(self) -> Optional[float]:
        """When the last of its requests expires (loop time); None if one never does, or if it is Async."""
        times = [delivery.expires for delivery in self.deliveries]
        return max((time for time in times if time is not None), default=None) if None not in times else None


@dataclass(frozen=True)
class Outcome:
    """How an invocation ended; ``started_at`` is seconds since the epoch, None if it never ran."""

    started_at: Optional[float] = None
    seconds: float = 0.0
    result: Optional[Mapping[str, Json]] = None
    error: Optional[WireError] = None

    def to_json(self) -> dict[str, Any]:
        """As it stands in a reply."""
        body: dict[str, Any] = {"seconds": round(self.seconds, 6)}
        if self.error is not None:
            body["error"] = self.error.to_json()
        else:
            body["result"] = dict(self.result or {})
        return body


class Turns:
    """Invocations of actions that are not concurrent run one at a time, in the order of their arrival."""

    def __init__(self) -> None:
        self.running: Optional[Invocation] = None
        self.waiting: deque[Invocation] = deque()

    @property
    def free(self) -> bool:
        """Nothing runs, and nothing waits."""
        return self.running is None and not self.waiting

    def next(self) -> Optional[Invocation]:
        """The one whose turn it is now, if it is anybody's."""
        if self.running is None and self.waiting:
            self.running = self.waiting.popleft()
            return self.running
        return None


class Replies:
    """The last replies by invocation id: a duplicate gets the first one's answer."""

    def __init__(self) -> None:
        self._replies: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    def get(self, invocation: str) -> Optional[bytes]:
        """The reply, if it is remembered."""
        return self._replies.get(invocation)

    def remember(self, invocation: str, reply: bytes) -> None:
        """Keep a reply; the oldest ones go."""
        self._size += len(reply) - len(self._replies.pop(invocation, b""))
        self._replies[invocation] = reply
        while len(self._replies) > REMEMBERED_REPLIES or (self._size > REMEMBERED_BYTES and len(self._replies) > 1):
            self._size -= len(self._replies.popitem(last=False)[1])


def must_not_run(delivery: Delivery, request: ActionRequest) -> bool:
    """It may have been begun before, by an adapter that died, and running it again could do harm.

    That it was delivered before does not prove it: a quorum queue also takes a message back when a worker that became
    busy ceases to consume at that very moment. An Async request of the worker's own queue is in the journal if it was
    begun.
    """
    unknown = request.mode is ActionMode.SYNC or delivery.from_pool
    return delivery.redelivered and unknown and not request.action.idempotent
