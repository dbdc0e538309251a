# SPDX-License-Identifier: Apache-2.0
"""Defines the errors of the Kubernetes API. The type of an error tells the caller what to do next."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any


class ApiError(Exception):
    """A refusal or failure of the API server.

    Attributes:
        status: The HTTP status; 0 if there was no answer.
        reason: The reason in the ``metav1.Status``, such as ``NotFound``.
        message: The server's message.
        retry_after_seconds: The delay before a retry, if the server gave one.
    """

    retryable = False

    def __init__(self, status: int, reason: str, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}" if status else message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds


class NotFoundError(ApiError):
    """An object that does not exist."""


class AlreadyExistsError(ApiError):
    """An object whose name exists already."""


class ConflictError(ApiError):
    """An object that has changed since it was read."""

    retryable = True


class ExpiredError(ApiError):
    """A resource version that is too old: list the objects again."""

    retryable = True


class InvalidError(ApiError):
    """An object that its schema or a policy refuses."""


class TooLargeError(ApiError):
    """An object or request that is larger than the API server or etcd accepts."""


class ForbiddenError(ApiError):
    """A request that RBAC does not permit."""


class UnavailableError(ApiError):
    """A missing answer, or a temporary failure. The server may have carried out the request; a retry may succeed."""

    retryable = True


_TOO_LARGE = ("etcdserver: request is too large", "trying to send message larger than max")
"""The texts of etcd and of its client (gRPC, ``ResourceExhausted``) in internal errors of kube-apiserver."""


def parse_error(status: int, body: Any, retry_after: str | None) -> ApiError:
    """Return the error for an answer; ``body`` is the parsed ``metav1.Status`` or any other value."""
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
    """Return the standard phrase of an HTTP status."""
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else "unknown status"
