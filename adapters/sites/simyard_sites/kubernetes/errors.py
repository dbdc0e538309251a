"""What the API server can answer, as types that carry policy."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any


class ApiError(Exception):
    """The API server refused or failed.

    Attributes:
        status: the HTTP status; 0 when there was no answer.
        reason: the reason of the ``metav1.Status``, such as ``NotFound``.
        message: what the server said.
        retry_after_seconds: when to try again, where it said so.
    """

    retryable = False

    def __init__(self, status: int, reason: str, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}" if status else message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds


class NotFoundError(ApiError):
    """There is no such object."""


class AlreadyExistsError(ApiError):
    """An object of that name exists."""


class ConflictError(ApiError):
    """The object has changed since it was read."""

    retryable = True


class ExpiredError(ApiError):
    """The resource version is too old: list again."""

    retryable = True


class InvalidError(ApiError):
    """The object was refused by its schema or by a policy."""


class TooLargeError(ApiError):
    """The object or the request has more bytes than the API server or etcd takes."""


class ForbiddenError(ApiError):
    """RBAC does not permit it."""


class UnavailableError(ApiError):
    """No answer, or none now: the same request may succeed later. It may have been carried out."""

    retryable = True


_TOO_LARGE = ("etcdserver: request is too large", "trying to send message larger than max")
"""Texts of etcd and of its client (gRPC, ``ResourceExhausted``) that kube-apiserver passes on as internal errors."""


def error_from(status: int, body: Any, retry_after: str | None) -> ApiError:
    """The error for an answer; ``body`` is the parsed ``metav1.Status`` or anything else."""
    if isinstance(body, dict):
        reason, message = str(body.get("reason") or ""), str(body.get("message") or "")
    else:
        reason, message = "", str(body or "")[:500]
    message = message.strip() or f"{status} {_phrase(status)} without a message"
    kind: type[ApiError]
    if status == 404:
        kind = NotFoundError
    elif status == 409:
        kind = AlreadyExistsError if reason == "AlreadyExists" else ConflictError
    elif status == 410:
        kind = ExpiredError
    elif status == 413 or (status >= 500 and any(text in message for text in _TOO_LARGE)):
        kind = TooLargeError
    elif status in (400, 422):
        kind = InvalidError
    elif status in (401, 403):
        kind = ForbiddenError
    elif status == 429 or status >= 500:
        kind = UnavailableError
    else:
        kind = ApiError
    seconds = float(retry_after) if retry_after and retry_after.isdigit() else None
    return kind(status, reason, message, seconds)


def _phrase(status: int) -> str:
    """The name of an HTTP status, as a standard has it."""
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else "unknown status"
