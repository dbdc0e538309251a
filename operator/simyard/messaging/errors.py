# SPDX-License-Identifier: Apache-2.0
"""Errors of messaging, as types that carry policy."""

from __future__ import annotations

from simyard_adapter.wire import WireError


class MessagingError(Exception):
    """A message did not pass the broker, or the answer to it is an error.

    Attributes:
        retryable: the same call may succeed later without any change.
    """

    retryable = False


class BrokerUnavailableError(MessagingError):
    """The broker cannot be reached, or went away before it answered; a sent message may have arrived."""

    retryable = True


class BrokerBlockedError(BrokerUnavailableError):
    """The broker accepts no messages while it is short of memory or disk; a sent message may have arrived."""


class BrokerRefusedError(MessagingError):
    """The broker refused: wrong credentials, no permission, or an existing queue or exchange with other properties."""


class NoConsumerError(MessagingError):
    """The queue does not exist; nothing was sent."""

    retryable = True


class QueueFullError(MessagingError):
    """The queue is full and accepted nothing."""

    retryable = True


class ReplyTimeoutError(MessagingError):
    """No reply arrived in time; the request itself expires in the queue after the same time."""

    retryable = True


class InvalidReplyError(MessagingError):
    """The worker's reply cannot be read; the worker may have carried out the request."""


class RemoteError(MessagingError):
    """The worker answered with an error."""

    def __init__(self, error: WireError) -> None:
        super().__init__(f"{error.reason.value}: {error.message}")
        self.error = error
