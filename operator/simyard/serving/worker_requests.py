# SPDX-License-Identifier: Apache-2.0
"""Sends requests to workers, and translates their errors for the caller."""

from __future__ import annotations

from collections.abc import Mapping

from simyard.guest.messages import Reply
from simyard.messaging.errors import (
    BrokerBlockedError,
    BrokerRefusedError,
    BrokerUnavailableError,
    InvalidReplyError,
    NoConsumerError,
    QueueFullError,
    RemoteError,
    ReplyTimeoutError,
)
from simyard.serving.broker import BrokerClient
from simyard.serving.directory import Destination
from simyard.serving.status import (
    StatusError,
    StatusReason,
    Subject,
    make_invalid_reply_error,
    make_unavailable_error,
    translate_wire_error,
)
from simyard_adapter.declarations import Json
from simyard_adapter.wire import ErrorReason, Request

BROKER_DOWN = "the message broker cannot be reached now; nothing was sent: try again"


async def ask(
    broker: BrokerClient,
    subject: Subject,
    destination: Destination,
    kind: Request,
    body: Mapping[str, Json],
    *,
    timeout_seconds: float,
    message_id: str | None = None,
    timeout_message: str,
) -> Reply:
    """Send a request and return the reply.

    Raises:
        StatusError: 502 if the reply cannot be read; 503 if nothing could be sent; 503 without ``Retry-After`` if the
            connection broke after the request was sent; 504 with ``timeout_message`` if no reply arrived in time; or
            the translation of the adapter's error.
    """
    if not broker.connected:
        raise make_unavailable_error(subject, BROKER_DOWN)
    try:
        return await broker.request(destination, kind, body, timeout_seconds=timeout_seconds, message_id=message_id)
    except NoConsumerError:
        raise make_unavailable_error(
            subject, f"{subject} has no queue at the message broker now; nothing was sent"
        ) from None
    except QueueFullError:
        raise make_unavailable_error(subject, f"the queue of {subject} is full; nothing was sent") from None
    except ReplyTimeoutError:
        raise StatusError(StatusReason.TIMEOUT, timeout_message, subject=subject) from None
    except BrokerBlockedError as error:
        raise make_unavailable_error(subject, f"{error}; an administrator must free memory or disk space") from None
    except (BrokerUnavailableError, BrokerRefusedError) as error:
        raise StatusError(
            StatusReason.SERVICE_UNAVAILABLE,
            f"the connection to the message broker was lost before {subject} answered; the request may have been "
            f"carried out: {error}",
            subject=subject,
        ) from error
    except RemoteError as error:
        raise translate_wire_error(subject, error.error) from error
    except InvalidReplyError as error:
        raise make_invalid_reply_error(subject, ErrorReason.INVALID_RESULT.value, str(error)) from error
