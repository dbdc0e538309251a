# SPDX-License-Identifier: Apache-2.0
"""The requests, invocations and outcomes of an adapter, and the decisions about them; no I/O."""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Mapping, Optional

from aiormq import spec
from aiormq.abc import DeliveredMessage

from simyard_adapter.context import Context
from simyard_adapter.declarations import Action, ActionMode, Interface, InvalidValuesError, Json, check_values
from simyard_adapter.file_urls import NO_URLS, AllowedUrls
from simyard_adapter.transport import Session
from simyard_adapter.wire import ErrorReason, WireError

MAX_REPLIES = 300
MAX_REPLIES_BYTES = 8 * 2**20
MAX_REQUESTER_CHARACTERS = 100
REPLY_DEADLINE_SECONDS = 60.0
"""The time for which the adapter tries to send a reply whose request has no expiration."""

MAX_SYNC = 9
MAX_SYNC_IF_CONCURRENT = 14
"""The limits of Sync invocations that run or wait, for a new exclusive and for a new concurrent action (a cancel, say).

Both are below the prefetch of 16, so that requests of other kinds always arrive.
"""

MAX_ASYNC = 1000
MAX_CONCURRENT_ASYNC = 32


class RefusedError(Exception):
    """The refusal of a request: the adapter replies with an error and does not run the action.

    ``again`` tells the requester that it may send the request again.
    """

    def __init__(self, reason: ErrorReason, message: str, field: str = "", *, again: bool = False) -> None:
        super().__init__(message)
        self.error = WireError(reason, message, field)
        self._again = again

    @classmethod
    def of_values(cls, invalid: InvalidValuesError) -> "RefusedError":
        """Return the refusal of invalid values: ``field`` is the path of the first, the message lists the others."""
        first, *others = invalid.errors
        return cls(ErrorReason.INVALID_PARAMETERS, "; ".join([first.problem, *map(str, others)]), first.path)

    def build_reply(self) -> dict[str, Any]:
        """Return the body of the reply."""
        reply = Outcome(error=self.error).to_json()
        return {**reply, "again": True} if self._again else reply


class BusyError(RefusedError):
    """The refusal of a request because the worker has other work; it may be sent ``again`` to the pool's queue."""

    def __init__(self, *, again: bool = False) -> None:
        message = "too many invocations run or wait on this worker: retry later, or use a larger pool"
        super().__init__(ErrorReason.BUSY, message, again=again)


class UncertainError(RefusedError):
    """The refusal of a request that another worker may have begun."""

    def __init__(self, *, again: bool) -> None:
        """Create the refusal.

        ``again`` is True if each worker tells the requester before it begins the action, so that the requester knows if
        the action began.
        """
        super().__init__(
            ErrorReason.INTERRUPTED,
            "the action may have begun on another worker, and is not declared idempotent: "
            "check its effects before you call it again",
            again=again,
        )


@dataclass(frozen=True)
class Delivery:
    """A request as it arrived; ``received`` is the loop time of its arrival."""

    message: DeliveredMessage
    session: Session
    from_pool: bool
    received: float

    @property
    def id(self) -> str:
        """The id of the invocation."""
        return self.properties.message_id or ""

    @property
    def properties(self) -> spec.Basic.Properties:
        """The AMQP properties of the message."""
        return self.message.header.properties

    @property
    def redelivered(self) -> bool:
        """True if the broker delivered the request before, to this or another adapter that did not acknowledge it."""
        return bool(self.message.redelivered)

    @property
    def expires(self) -> Optional[float]:
        """The loop time at which the request expires, or None."""
        milliseconds = self.properties.expiration  # The broker refuses an expiration that is not a number.
        return self.received + int(milliseconds) / 1000 if milliseconds else None

    @property
    def reply_deadline(self) -> float:
        """The loop time after which the reply is of no use."""
        return self.expires or self.received + REPLY_DEADLINE_SECONDS

    @property
    def requester(self) -> Optional[str]:
        """The name of the client that waits for the reply, or None if no valid name is given."""
        name = self.properties.reply_to
        return name if name and "." not in name and len(name) <= MAX_REQUESTER_CHARACTERS else None

    def parse_body(self) -> dict[str, Any]:
        """Return the JSON object in the body.

        Raises:
            RefusedError: The body is not a JSON object.
        """
        try:
            body = json.loads(self.message.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise RefusedError(ErrorReason.INVALID_REQUEST, f"the request's body is not JSON: {error}") from None
        if not isinstance(body, dict):
            raise RefusedError(ErrorReason.INVALID_REQUEST, "the request's body must be a JSON object")
        return body


@dataclass(frozen=True)
class ActionRequest:
    """A request for an action, checked against the interface; ``urls`` are the URLs that its files may have."""

    action: Action
    parameters: Mapping[str, Json]
    mode: ActionMode
    timeout_seconds: float
    tells_begun: bool = False
    urls: AllowedUrls = NO_URLS

    @classmethod
    def read(cls, body: Mapping[str, Any], interface: Interface) -> "ActionRequest":
        """Read the body of a request.

        Raises:
            RefusedError: The action is unknown, or a parameter does not fit.
        """
        action = cls.find_action(body, interface)
        given = {} if body.get("parameters") is None else body["parameters"]
        if not isinstance(given, dict):
            raise RefusedError(ErrorReason.INVALID_PARAMETERS, "must be an object", "parameters")
        mode, timeout = body.get("mode") or action.mode, body.get("timeoutSeconds")
        try:
            urls = AllowedUrls.from_json(body.get("urls"))
        except ValueError as error:
            raise RefusedError(ErrorReason.INVALID_REQUEST, str(error)) from None
        return cls.check(action, given, mode, timeout, tells_begun=body.get("tellBegun") is True, urls=urls)

    @staticmethod
    def find_action(body: Mapping[str, Any], interface: Interface) -> Action:
        """Return the declaration of the action that a request names.

        Raises:
            RefusedError: The action is unknown.
        """
        action = interface.find_action(str(body.get("action")))
        if action is None:
            names = ", ".join(item.name for item in interface.actions) or "none"
            raise RefusedError(
                ErrorReason.UNKNOWN_ACTION,
                f"the service has no action {body.get('action')!r}; its actions are: {names}",
                "action",
            )
        return action

    @classmethod
    def check(
        cls,
        action: Action,
        given: Mapping[str, Json],
        mode: Any,
        timeout_seconds: Any,
        *,
        tells_begun: bool = False,
        urls: AllowedUrls = NO_URLS,
    ) -> "ActionRequest":
        """Return a request with these values.

        Raises:
            RefusedError: A value does not fit.
        """
        try:
            parameters = check_values(given, action.parameters, "parameters", urls=urls)
            timeout = min(float(timeout_seconds or action.timeout_seconds), action.timeout_seconds)
            if not timeout > 0:
                raise ValueError("timeoutSeconds must be positive")
            return cls(action, parameters, ActionMode(mode), timeout, tells_begun, urls)
        except InvalidValuesError as error:
            raise RefusedError.of_values(error) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise RefusedError(ErrorReason.INVALID_REQUEST, str(error)) from None


@dataclass(eq=False)
class Invocation:
    """An accepted invocation.

    ``deliveries`` are the Sync requests that wait for the reply; there are several after a reconnect.
    """

    id: str
    request: ActionRequest
    context: Context
    deliveries: list[Delivery] = field(default_factory=list)
    running: bool = False

    @property
    def synchronous(self) -> bool:
        """True if a caller waits for the reply."""
        return self.request.mode is ActionMode.SYNC

    @property
    def tells_begun(self) -> bool:
        """True if the requester must be told before the action begins.

        This holds for actions that must not run twice, and that the broker could deliver to another worker.
        """
        latest = self.deliveries[-1] if self.deliveries else None
        wanted = self.request.tells_begun and not self.request.action.idempotent
        return wanted and latest is not None and latest.from_pool and latest.requester is not None

    @property
    def from_pool(self) -> bool:
        """True if all its requests came from the pool's queue, and at least one did."""
        return bool(self.deliveries) and all(delivery.from_pool for delivery in self.deliveries)

    def came_with(self, session: Session) -> bool:
        """Return True if all its requests came with a session."""
        return all(delivery.session is session for delivery in self.deliveries)

    @property
    def runs_again(self) -> bool:
        """True if the adapter's end interrupted the action, and the next adapter or another worker runs it again."""
        return self.context.stopped is ErrorReason.INTERRUPTED and self.request.action.idempotent

    @property
    def expires(self) -> Optional[float]:
        """The loop time at which the last request expires; None if it is Async or a request never expires."""
        times = [delivery.expires for delivery in self.deliveries]
        return max((time for time in times if time is not None), default=None) if None not in times else None


@dataclass(frozen=True)
class Outcome:
    """The end of an invocation; ``started_at`` is in seconds since the epoch, or None if the action never ran."""

    started_at: Optional[float] = None
    seconds: float = 0.0
    result: Optional[Mapping[str, Json]] = None
    error: Optional[WireError] = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the reply."""
        body: dict[str, Any] = {"seconds": round(self.seconds, 6)}
        if self.error is not None:
            body["error"] = self.error.to_json()
        else:
            body["result"] = dict(self.result or {})
        return body

    def to_result(self) -> dict[str, Any]:
        """Return the fields of the event ``result``."""
        return {"startedAt": self.started_at, **self.to_json()}


class Turns:
    """The queue of invocations that are not concurrent: they run one at a time, in the order of arrival.

    Tasks of studies take turns as well, mostly while no invocation waits.

    Attributes:
        running: The invocation that has the turn, if any.
        waiting: The invocations that wait for their turn.
        held_by_task: True while a task of a study has the turn.
        closed: True if no further turn begins, because the adapter ends.
    """

    def __init__(self) -> None:
        self.running: Optional[Invocation] = None
        self.waiting: deque[Invocation] = deque()
        self.held_by_task = False
        self.closed = False

    @property
    def free(self) -> bool:
        """True if no invocation runs or waits."""
        return self.running is None and not self.waiting

    def take_waiting(self, chosen: Callable[[Invocation], bool]) -> list[Invocation]:
        """Remove the waiting invocations that are ``chosen``, and return them."""
        taken = [invocation for invocation in self.waiting if chosen(invocation)]
        for invocation in taken:
            self.waiting.remove(invocation)
        return taken

    def start_next(self) -> Optional[Invocation]:
        """Start the next turn; return its invocation, or None if an invocation runs or none waits."""
        if self.between_turns and self.waiting:
            self.running = self.waiting.popleft()
            return self.running
        return None

    @property
    def between_turns(self) -> bool:
        """True if the next turn may begin."""
        return self.running is None and not self.held_by_task and not self.closed

    @property
    def free_for_task(self) -> bool:
        """True if a task of a study may take the turn, because no invocation waits."""
        return self.between_turns and not self.waiting


class Replies:
    """The most recent replies by invocation id, which duplicates of a request receive."""

    def __init__(self) -> None:
        self._replies: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    def get(self, invocation: str) -> Optional[bytes]:
        """Return the reply to an invocation, or None if it is unknown."""
        return self._replies.get(invocation)

    def remember(self, invocation: str, reply: bytes) -> None:
        """Store a reply; the oldest replies are dropped."""
        self._size += len(reply) - len(self._replies.pop(invocation, b""))
        self._replies[invocation] = reply
        while len(self._replies) > MAX_REPLIES or (self._size > MAX_REPLIES_BYTES and len(self._replies) > 1):
            self._size -= len(self._replies.popitem(last=False)[1])


def must_not_run(delivery: Delivery, request: ActionRequest) -> bool:
    """Return True if an adapter that died may have begun the action, and a second run could do harm.

    A redelivery does not prove that the action began: a quorum queue also takes back a message when a worker that
    became busy stops consuming at that moment. An Async request from the worker's own queue is in the journal if the
    action began.
    """
    unknown = request.mode is ActionMode.SYNC or delivery.from_pool
    return delivery.redelivered and unknown and not request.action.idempotent


def is_full(live: Iterable[Invocation], request: ActionRequest) -> bool:
    """Return True if too many invocations run or wait for another one like this."""
    concurrent, synchronous = request.action.concurrent, request.mode is ActionMode.SYNC
    similar = [item for item in live if item.synchronous == synchronous]
    if synchronous:
        return len(similar) >= (MAX_SYNC_IF_CONCURRENT if concurrent else MAX_SYNC)
    if concurrent:
        return sum(item.request.action.concurrent for item in similar) >= MAX_CONCURRENT_ASYNC
    return len(similar) >= MAX_ASYNC
