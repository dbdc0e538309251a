# SPDX-License-Identifier: Apache-2.0
"""Errors of messaging; their types say whether a retry makes sense."""

from __future__ import annotations

from simyard_adapter.wire import WireError


class MessagingError(Exception):
    """Error: the broker did not accept or deliver a message, or the answer to a message is an error.

    Attributes:
        retryable: True if the same call may succeed later without a change.
    """

    retryable = False


class BrokerUnavailableError(MessagingError):
    """Error: the broker cannot be reached, or was lost before it answered; a sent message may have arrived."""

    retryable = True


class BrokerBlockedError(BrokerUnavailableError):
    """Error: the broker is short of memory or disk, and accepts no messages; a sent message may have arrived."""


class BrokerRefusedError(MessagingError):
    """Error: the broker refused an operation, because of credentials, permissions, or a queue of other properties."""


class NoConsumerError(MessagingError):
    """Error: the queue does not exist, so no message was sent."""

    retryable = True


class QueueFullError(MessagingError):
    """Error: the queue is full, and has not accepted the message."""

    retryable = True


class ReplyTimeoutError(MessagingError):
    """Error: no reply arrived in time. The request expires in the queue after the same time."""

    retryable = True


class InvalidReplyError(MessagingError):
    """Error: the worker's reply cannot be read. The worker may have carried out the request."""


class RemoteError(MessagingError):
    """Error: the worker answered with an error."""

    def __init__(self, error: WireError) -> None:
        super().__init__(f"{error.reason.value}: {error.message}")
        self.error = error
