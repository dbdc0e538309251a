# SPDX-License-Identifier: Apache-2.0
"""Errors of the client: one class for each reason that the platform documents (docs/conditions.md, docs/actions.md).

A caller can distinguish by class whether the program refused its input (:class:`InvalidParametersError`), whether the
program failed (:class:`ActionFailedError`), and whether the action may have run although there is no result
(:class:`OutcomeUnknownError` and its subclasses). The client never repeats a request of the last kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Problem:
    """A refused value; ``field`` is its path, such as ``parameters.length``."""

    field: str
    message: str


class SimyardError(Exception):
    """A failure that this client reports. All its errors have this class.

    Attributes:
        message: The explanation.
        reason: The reason of the platform, one word; empty if the client itself found the failure.
        status: The HTTP status; 0 without an answer of the API server.
        problems: The refused values.
        worker: The name of the worker that ran the action; empty if it is unknown.
        action: The name of the ServiceAction; empty for a Sync call.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        status: int = 0,
        problems: tuple[Problem, ...] = (),
        worker: str = "",
        action: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.status = status
        self.problems = problems
        self.worker = worker
        self.action = action
        self.retry_after = retry_after

    @property
    def fields(self) -> dict[str, str]:
        """The refused values: the problem of each by the path of its field."""
        return {problem.field: problem.message for problem in self.problems}


class ConfigError(SimyardError):
    """A kubeconfig or credentials that cannot be used."""


class ClosedError(SimyardError):
    """A use of a client that was closed."""


class ConnectionFailedError(SimyardError):
    """A request that reached no API server: nothing was done."""


class RequestError(SimyardError):
    """A request that the API server refused."""


class UnauthorizedError(RequestError):
    """Credentials that the API server does not accept."""


class ForbiddenError(RequestError):
    """A request for which the user has no right, or a quota that is used up."""


class NotFoundError(RequestError):
    """An object, an action or an attribute that does not exist; the message lists the declared ones."""


class AlreadyExistsError(RequestError):
    """A name that another object has."""


class ConflictError(RequestError):
    """A change of an object that another writer has changed."""


class TooLargeError(RequestError):
    """A body that is larger than the API server permits."""


class TooManyRequestsError(RequestError):
    """More requests at once than the API server accepts."""


class InvalidError(RequestError):
    """Values that the API server refused; ``problems`` has their paths."""


class UnavailableError(RequestError):
    """A part of the platform that does not answer now; the platform did nothing."""


class NoWorkerReadyError(UnavailableError):
    """No worker could take the action: none is ready, or the broker is down. The action did not run."""


class ActionError(SimyardError):
    """An action without a result."""

    read_log: Callable[[], str] | None = None
    """The function that reads the log of the action; None if the action has no log of its own."""

    def log(self) -> str:
        """Return the log of the action, as far as it is kept; empty for a Sync call, whose worker has the log."""
        return self.read_log() if self.read_log is not None else ""


class InvalidParametersError(ActionError):
    """Parameters that are unknown, missing, of the wrong type or out of bounds; ``problems`` has their paths."""


class UnknownActionError(ActionError):
    """An action that the service does not declare."""


class TargetNotFoundError(ActionError):
    """A worker, pool or service that does not exist."""


class TooManyActionsError(ActionError):
    """More unfinished ServiceActions than a namespace may keep."""


class ActionFailedError(ActionError):
    """A simulation program that refused the action or failed; the message is that of the program."""


class ConnectorCrashedError(ActionError):
    """A connector of the vendor that failed with an error that it does not declare."""


class TimedOutError(ActionError):
    """An action that ran longer than its timeout."""


class CancelledError(ActionError):
    """An action that a user cancelled."""


class ResultTooLargeError(ActionError):
    """An action that ended with a result above 1 MiB."""


class InvalidResultError(ActionError):
    """An action that ended with a result that does not match the declaration."""


class FileTransferFailedError(ActionError):
    """A file of the action that could not be downloaded or uploaded."""


class OutcomeUnknownError(ActionError):
    """An action that may have run, and whose result is lost. Check its effects before you repeat it."""


class InterruptedActionError(OutcomeUnknownError):
    """An action that is not declared idempotent, and whose worker stopped while it ran."""


class WorkerLostError(OutcomeUnknownError):
    """An action that is not declared idempotent, and whose worker is gone."""


class NoAnswerError(OutcomeUnknownError):
    """A Sync call without an answer: after 30 s, or because the connection broke."""


class StudyFailedError(SimyardError):
    """A study that ended before all its tasks; the results of finished tasks are kept."""


class FileError(SimyardError):
    """A file that could not be uploaded or downloaded."""


_ACTION_REASONS: Mapping[str, type[ActionError]] = {
    "InvalidParameters": InvalidParametersError,
    "UnknownAction": UnknownActionError,
    "TargetNotFound": TargetNotFoundError,
    "TooManyActions": TooManyActionsError,
    "ActionFailed": ActionFailedError,
    "ConnectorCrashed": ConnectorCrashedError,
    "TimedOut": TimedOutError,
    "Cancelled": CancelledError,
    "ResultTooLarge": ResultTooLargeError,
    "InvalidResult": InvalidResultError,
    "FileTransferFailed": FileTransferFailedError,
    "Interrupted": InterruptedActionError,
    "WorkerLost": WorkerLostError,
}
_STATUSES: Mapping[int, type[RequestError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    413: TooLargeError,
    422: InvalidError,
    429: TooManyRequestsError,
    503: UnavailableError,
}


def make_action_error(reason: str, message: str, *, worker: str = "", action: str = "") -> ActionError:
    """Return the error for the failure of an action, as ``status.failure`` of a ServiceAction has it."""
    kind = _ACTION_REASONS.get(reason, ActionError)
    problems: tuple[Problem, ...] = ()
    if kind is InvalidParametersError:
        field, _, problem = message.removeprefix("spec.").partition(": ")
        problems = (Problem(field, problem),) if problem and " " not in field else ()
    return kind(f"{reason}: {message}", reason=reason, problems=problems, worker=worker, action=action)


def make_request_error(status: int, body: bytes, retry_after: float | None, *, calls_action: bool) -> SimyardError:
    """Return the error for an answer of the API server that is no success.

    Args:
        status: The HTTP status.
        body: The body, usually a ``metav1.Status``.
        retry_after: The value of the header ``Retry-After`` in seconds.
        calls_action: The request called an action.
    """
    answer = _read_status(body)
    details = answer.get("details")
    causes = details.get("causes") if isinstance(details, Mapping) else None
    listed = [cause for cause in causes or [] if isinstance(cause, Mapping)]
    problems = tuple(
        Problem(str(cause["field"]), str(cause.get("message") or "")) for cause in listed if cause.get("field")
    )
    reason = str(answer.get("reason") or "")
    message = str(answer.get("message") or body[:500].decode(errors="replace") or f"HTTP status {status}")
    kind: type[SimyardError] = _STATUSES.get(status, RequestError)
    if calls_action:
        named = [str(cause.get("reason")) for cause in listed]
        kind = _choose_action_error(status, reason, named, retry_after) or kind
    elif status == 409 and reason == "AlreadyExists":
        kind = AlreadyExistsError
    return kind(message, reason=reason, status=status, problems=problems, retry_after=retry_after)


def _choose_action_error(
    status: int, reason: str, causes: list[str], retry_after: float | None
) -> type[SimyardError] | None:
    if status == 503:
        return NoAnswerError if retry_after is None else NoWorkerReadyError
    if status == 422:
        return InvalidParametersError if reason == "Invalid" else _ACTION_REASONS.get(reason, ActionError)
    for cause in causes:  # 502 and 504 name the reason of the worker in a cause
        if cause in _ACTION_REASONS:
            return _ACTION_REASONS[cause]
    return NoAnswerError if status >= 500 else None


def _read_status(body: bytes) -> Mapping[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        return {}
    return answer if isinstance(answer, Mapping) else {}
