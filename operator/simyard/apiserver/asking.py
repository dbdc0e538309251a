"""One question to one worker, with every way in which it can fail turned into what the caller is told."""

from __future__ import annotations

from collections.abc import Mapping

from simyard.apiserver.broker import BrokerLink
from simyard.apiserver.directory import Destination
from simyard.apiserver.status import StatusError, StatusReason, Subject, from_wire, invalid_reply, unavailable
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
from simyard_adapter.declarations import Json
from simyard_adapter.wire import Reason as WireReason
from simyard_adapter.wire import Request

BROKER_DOWN = "the message broker cannot be reached now; nothing was sent"


async def ask(
    broker: BrokerLink,
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
        StatusError: 502 when the reply cannot be read, 503 when nothing could be sent, 504 (``timeout_message``) when
            nobody answered in time, 503 without
            a ``Retry-After`` when the connection broke meanwhile, or what the adapter's own error maps to.
    """
    if not broker.connected:
        raise unavailable(subject, BROKER_DOWN)
    try:
        return await broker.request(destination, kind, body, timeout_seconds=timeout_seconds, message_id=message_id)
    except NoConsumerError:
        raise unavailable(subject, f"{subject} has no queue at the message broker now; nothing was sent") from None
    except QueueFullError:
        raise unavailable(subject, f"the queue of {subject} is full; nothing was sent") from None
    except ReplyTimeoutError:
        raise StatusError(StatusReason.TIMEOUT, timeout_message, subject=subject) from None
    except BrokerBlockedError as error:
        raise unavailable(subject, f"{error}; an administrator must free some, then try again") from None
    except (BrokerUnavailableError, BrokerRefusedError) as error:
        raise StatusError(
            StatusReason.SERVICE_UNAVAILABLE,
            f"the message broker went away before {subject} answered; the request may have been carried out: {error}",
            subject=subject,
        ) from error
    except RemoteError as error:
        raise from_wire(subject, error.error) from error
    except InvalidReplyError as error:
        raise invalid_reply(subject, WireReason.INVALID_RESULT.value, str(error)) from error
