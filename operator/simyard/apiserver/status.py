"""Refusals as ``metav1.Status``, the one shape in which clients of Kubernetes read errors.

Codes are chosen by what clients do with them. An action that the simulation program refused or failed answers 422 with
the adapter's reason (``ActionFailed``, ...), as ``pods/exec`` answers a failed command with a reason of its own and the
exit code among ``details.causes``: the request was well formed and permitted, and it fails again when it is sent again.
A 409 would make client-go run the action again (``RetryOnConflict``), a 5xx would count as a fault of the platform.
client-go also repeats every request whose 429 or 5xx carries ``Retry-After``, up to ten times: it is set only where
nothing was done and waiting helps.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from simyard.api.base import Json
from simyard_adapter.declarations import InvalidValuesError
from simyard_adapter.wire import Reason as WireReason
from simyard_adapter.wire import WireError
from simyard_sites.kubernetes.errors import ApiError
from simyard_sites.kubernetes.resource import Resource


class StatusReason(enum.StrEnum):
    """The reasons of ``metav1.Status`` that are used here (k8s.io/apimachinery, ``meta/v1/types.go``)."""

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
    """One entry of ``details.causes``."""

    reason: str
    message: str
    field: str = ""

    def to_json(self) -> Json:
        """As it stands in the Status."""
        data = {"reason": self.reason, "message": self.message}
        if self.field:
            data["field"] = self.field
        return data


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that a Status speaks of: the target of the request."""

    resource: Resource
    name: str

    def __str__(self) -> str:
        return f'{self.resource.plural}.{self.resource.group} "{self.name}"'


class StatusError(Exception):
    """A request is refused or failed.

    ``reason`` is a :class:`StatusReason`, or the adapter's own for a failed action. ``retry_after_seconds`` becomes the
    header ``Retry-After`` and ``details.retryAfterSeconds``.
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
        """The ``metav1.Status``."""
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


def not_found(subject: Subject) -> StatusError:
    """There is no such object, in the words of kube-apiserver."""
    return StatusError(StatusReason.NOT_FOUND, f"{subject} not found", subject=subject)


def undeclared(subject: Subject, what: str, name: str, declared: Sequence[str]) -> StatusError:
    """The service declares no such action or attribute; says which it declares."""
    names = ", ".join(sorted(declared)) or "none"
    return StatusError(
        StatusReason.NOT_FOUND, f'{subject} has no {what} "{name}"; declared are: {names}', subject=subject
    )


def invalid(subject: Subject, causes: Sequence[Cause]) -> StatusError:
    """Values of the body are refused; every cause names its field."""
    problems = "; ".join(f"{cause.field}: {cause.message}" for cause in causes)
    return StatusError(StatusReason.INVALID, f"{subject} is invalid: {problems}", subject=subject, causes=causes)


def invalid_values(subject: Subject, error: InvalidValuesError) -> StatusError:
    """Values do not fit what the service declares."""
    return invalid(subject, [Cause("FieldValueInvalid", item.problem, item.path) for item in error.errors])


def unavailable(subject: Subject, message: str, causes: Sequence[Cause] = ()) -> StatusError:
    """Nothing was sent, because nobody could take it now."""
    return StatusError(StatusReason.SERVICE_UNAVAILABLE, message, subject=subject, causes=causes, retry_after_seconds=1)


def from_wire(subject: Subject, error: WireError) -> StatusError:
    """What an adapter answered instead of a result."""
    cause = Cause(error.reason.value, error.message, error.field)
    match error.reason:
        case WireReason.INVALID_PARAMETERS:
            return invalid(subject, [Cause("FieldValueInvalid", error.message, error.field or "parameters")])
        case WireReason.UNKNOWN_ACTION | WireReason.UNKNOWN_ATTRIBUTE:
            reason = StatusReason.NOT_FOUND
        case WireReason.DRAINING | WireReason.BUSY:
            return unavailable(subject, error.message, [cause])
        case WireReason.TIMED_OUT:
            reason = StatusReason.TIMEOUT
        case WireReason.INVALID_REQUEST:
            reason = StatusReason.INTERNAL_ERROR
        case WireReason.RESULT_TOO_LARGE | WireReason.INVALID_RESULT:
            return invalid_reply(subject, error.reason.value, error.message, error.field)
        case _:
            return StatusError(
                error.reason.value, error.message, code=ACTION_FAILED_CODE, subject=subject, causes=[cause]
            )
    return StatusError(reason, error.message, subject=subject, causes=[cause])


def invalid_reply(subject: Subject, reason: str, message: str, field: str = "") -> StatusError:
    """The worker did what was asked, and what it answered cannot be passed on: the fault of the service's program."""
    cause = Cause(reason, message, field)
    text = f"the reply of {subject} is refused: {f'{field}: ' if field else ''}{message}"
    return StatusError(reason, text, code=BAD_GATEWAY_CODE, subject=subject, causes=[cause])


def from_api(subject: Subject, error: ApiError) -> StatusError:
    """What kube-apiserver answered to a request of ours, made for the caller."""
    if 400 <= error.status < 500 and error.status not in (401, 429):
        return StatusError(error.reason or StatusReason.BAD_REQUEST, error.message, code=error.status, subject=subject)
    return StatusError(
        StatusReason.SERVICE_UNAVAILABLE,
        f"the Kubernetes API does not answer now: {error.message}; it may have been carried out",
        subject=subject,
    )
