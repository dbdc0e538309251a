# SPDX-License-Identifier: Apache-2.0
"""Builds errors of requests as ``metav1.Status``, the format of errors for Kubernetes clients.

The codes follow from what clients do after them. If the simulation program refused an action or failed, the code is
422, with the adapter's reason (``ActionFailed``, ...): the request is well formed and permitted, but would fail again.
(``pods/exec`` also reports a failed command with its own reason, and the exit code in ``details.causes``.) With a 409,
client-go would run the action again (``RetryOnConflict``); a 5xx would count as a fault of the platform.

client-go repeats requests up to ten times if a 429 or 5xx has ``Retry-After``. The response therefore has this header
only if nothing was done and a later attempt may succeed.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from simyard.api.base import Json
from simyard_adapter.declarations import InvalidValuesError
from simyard_adapter.wire import ErrorReason, WireError
from simyard_sites.kubernetes.errors import ApiError
from simyard_sites.kubernetes.resource import Resource


class StatusReason(enum.StrEnum):
    """A reason of ``metav1.Status`` (k8s.io/apimachinery, ``meta/v1/types.go``)."""

    BAD_REQUEST = "BadRequest"
    UNAUTHORIZED = "Unauthorized"
    FORBIDDEN = "Forbidden"
    NOT_FOUND = "NotFound"
    METHOD_NOT_ALLOWED = "MethodNotAllowed"
    NOT_ACCEPTABLE = "NotAcceptable"
    REQUEST_ENTITY_TOO_LARGE = "RequestEntityTooLarge"
    UNSUPPORTED_MEDIA_TYPE = "UnsupportedMediaType"
    INVALID = "Invalid"
    TOO_MANY_REQUESTS = "TooManyRequests"
    INTERNAL_ERROR = "InternalError"
    SERVICE_UNAVAILABLE = "ServiceUnavailable"
    TIMEOUT = "Timeout"


CODES = {
    StatusReason.BAD_REQUEST: 400,
    StatusReason.UNAUTHORIZED: 401,
    StatusReason.FORBIDDEN: 403,
    StatusReason.NOT_FOUND: 404,
    StatusReason.METHOD_NOT_ALLOWED: 405,
    StatusReason.NOT_ACCEPTABLE: 406,
    StatusReason.REQUEST_ENTITY_TOO_LARGE: 413,
    StatusReason.UNSUPPORTED_MEDIA_TYPE: 415,
    StatusReason.INVALID: 422,
    StatusReason.TOO_MANY_REQUESTS: 429,
    StatusReason.INTERNAL_ERROR: 500,
    StatusReason.SERVICE_UNAVAILABLE: 503,
    StatusReason.TIMEOUT: 504,
}
ACTION_FAILED_CODE = 422
BAD_GATEWAY_CODE = 502


@dataclass(frozen=True, slots=True)
class Cause:
    """An entry of ``details.causes`` in a Status."""

    reason: str
    message: str
    field: str = ""

    def to_json(self) -> Json:
        """Return the cause in the form of the Status."""
        data = {"reason": self.reason, "message": self.message}
        if self.field:
            data["field"] = self.field
        return data


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that a Status is about: the target of the request."""

    resource: Resource
    name: str

    def __str__(self) -> str:
        """Return the object's name as kube-apiserver writes it."""
        return f'{self.resource.plural}.{self.resource.group} "{self.name}"'


class StatusError(Exception):
    """The refusal or failure of a request.

    ``reason`` is a :class:`StatusReason`, or the adapter's reason for a failed action. ``retry_after_seconds`` becomes
    the header ``Retry-After`` and ``details.retryAfterSeconds``.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        code: int = 0,
        subject: Subject | None = None,
        causes: Sequence[Cause] = (),
        retry_after_seconds: int = 0,
    ) -> None:
        super().__init__(message)
        self.reason = str(reason)
        self.code = code or CODES[StatusReason(reason)]
        self.message = message
        self.subject = subject
        self.causes = tuple(causes)
        self.retry_after_seconds = retry_after_seconds

    def to_json(self) -> Json:
        """Return the error as ``metav1.Status``."""
        details: Json = {}
        if self.subject is not None:
            resource = self.subject.resource
            details = {"name": self.subject.name, "group": resource.group, "kind": resource.plural}
        if self.causes:
            details["causes"] = [cause.to_json() for cause in self.causes]
        if self.retry_after_seconds:
            details["retryAfterSeconds"] = self.retry_after_seconds
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            **({"details": details} if details else {}),
            "code": self.code,
        }


def make_not_found_error(subject: Subject) -> StatusError:
    """Return the error for an object that does not exist, in the words of kube-apiserver."""
    return StatusError(StatusReason.NOT_FOUND, f"{subject} not found", subject=subject)


def make_undeclared_error(subject: Subject, what: str, name: str, declared: Sequence[str]) -> StatusError:
    """Return the error for an undeclared action or attribute; its message lists the ``declared`` names."""
    names = ", ".join(sorted(declared)) or "none"
    return StatusError(
        StatusReason.NOT_FOUND, f'{subject} has no {what} "{name}"; declared are: {names}', subject=subject
    )


def make_invalid_error(subject: Subject, causes: Sequence[Cause]) -> StatusError:
    """Return the error for invalid values in the body; every cause contains its field."""
    problems = "; ".join(f"{cause.field}: {cause.message}" for cause in causes)
    return StatusError(StatusReason.INVALID, f"{subject} is invalid: {problems}", subject=subject, causes=causes)


def make_invalid_values_error(subject: Subject, error: InvalidValuesError) -> StatusError:
    """Return the error for values that do not match the declarations of the service."""
    return make_invalid_error(subject, [Cause("FieldValueInvalid", item.problem, item.path) for item in error.errors])


def make_unavailable_error(subject: Subject, message: str, causes: Sequence[Cause] = ()) -> StatusError:
    """Return the error for a request that was not sent because no receiver is available."""
    return StatusError(StatusReason.SERVICE_UNAVAILABLE, message, subject=subject, causes=causes, retry_after_seconds=1)


def translate_wire_error(subject: Subject, error: WireError) -> StatusError:
    """Return the error for an adapter's error reply."""
    cause = Cause(error.reason.value, error.message, error.field)
    match error.reason:
        case ErrorReason.INVALID_PARAMETERS:
            return make_invalid_error(subject, [Cause("FieldValueInvalid", error.message, error.field or "parameters")])
        case ErrorReason.UNKNOWN_ACTION | ErrorReason.UNKNOWN_ATTRIBUTE:
            reason = StatusReason.NOT_FOUND
        case ErrorReason.DRAINING | ErrorReason.BUSY:
            return make_unavailable_error(subject, error.message, [cause])
        case ErrorReason.TIMED_OUT:
            reason = StatusReason.TIMEOUT
        case ErrorReason.INVALID_REQUEST:
            reason = StatusReason.INTERNAL_ERROR
        case ErrorReason.RESULT_TOO_LARGE | ErrorReason.INVALID_RESULT:
            return make_invalid_reply_error(subject, error.reason.value, error.message, error.field)
        case _:
            return StatusError(
                error.reason.value, error.message, code=ACTION_FAILED_CODE, subject=subject, causes=[cause]
            )
    return StatusError(reason, error.message, subject=subject, causes=[cause])


def make_invalid_reply_error(subject: Subject, reason: str, message: str, field: str = "") -> StatusError:
    """Return the error for a request that the worker carried out, but whose reply does not match the declaration."""
    cause = Cause(reason, message, field)
    text = f"the reply of {subject} is refused: {f'{field}: ' if field else ''}{message}"
    return StatusError(reason, text, code=BAD_GATEWAY_CODE, subject=subject, causes=[cause])


def translate_api_error(subject: Subject, error: ApiError) -> StatusError:
    """Return the error for the caller, after kube-apiserver answered a request of this process with an error."""
    if 400 <= error.status < 500 and error.status not in (401, 429):
        return StatusError(error.reason or StatusReason.BAD_REQUEST, error.message, code=error.status, subject=subject)
    return StatusError(
        StatusReason.SERVICE_UNAVAILABLE,
        f"the Kubernetes API does not answer now: {error.message}; it may have carried out the request",
        subject=subject,
    )
