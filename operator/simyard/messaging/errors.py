"""What can go wrong between us and a worker, as types that carry policy."""

from __future__ import annotations

from simyard_adapter.wire import WireError


class MessagingError(Exception):
    """Something did not get through the broker, or came back as an error.

    Attributes:
        retryable: the same call may succeed later without anybody changing anything.
    """

    retryable = False


class BrokerUnavailableError(MessagingError):
    """The broker cannot be reached, or went away before it answered: what was sent may have arrived."""

    retryable = True


class BrokerBlockedError(BrokerUnavailableError):
    """The broker takes no messages while it is short of memory or disk: nothing was sent, or its arrival is unknown."""


class BrokerRefusedError(MessagingError):
    """The broker refuses: wrong credentials, no permission, or an existing queue or exchange of other properties."""


class NoConsumerError(MessagingError):
    """There is no such queue: nothing was sent."""

    retryable = True


class QueueFullError(MessagingError):
    """The queue is at its limit and took nothing."""

    retryable = True


class ReplyTimeoutError(MessagingError):
    """No reply in time; the request itself expires in the queue after the same time."""

    retryable = True


class InvalidReplyError(MessagingError):
    """The worker's reply cannot be read; what was asked for may have been done."""


class RemoteError(MessagingError):
    """The worker answered with an error."""

    def __init__(self, error: WireError) -> None:
        super().__init__(f"{error.reason.value}: {error.message}")
        self.error = error
