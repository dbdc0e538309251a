"""What an API server's refusal means for a site: the error types of the site interface, with field and remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp

from simyard_sites.base import (
    ConflictError,
    ErrorScope,
    InternalError,
    InvalidSpecError,
    MachineNotFoundError,
    PermissionDeniedError,
    QuotaExhaustedError,
    SiteError,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
    UnknownOutcomeError,
)
from simyard_sites.kubernetes.errors import ApiError

BAD_REQUEST = (400, 403, 404, 409, 422)
QUOTA = "exceeded quota"
"""In refusals of the quota plugin, which looks before anybody sees that the object exists already."""


@dataclass(frozen=True, slots=True)
class Hint:
    """What to tell the user when a refusal has ``text`` in it: which field is wrong, and the remedy."""

    text: str
    remedy: str


def site_error(
    error: ApiError, *, hints: Sequence[Hint] = (), writes: bool = False, own_quota: bool = True
) -> SiteError:
    """The site's error for an answer of the API server, or for none.

    ``writes``: the request would have changed something, so that a lost answer leaves open whether it did.
    ``own_quota``: the namespace is the site's own, so that its quota is the site's; else it concerns those who work in
    that namespace.
    """
    said = error.message or str(error)
    if error.status == 0:
        return _silent(error, writes)
    if error.status == 401:
        return UnauthenticatedError(f"the API server does not accept the credentials: {said}")
    if error.status == 429:
        return ThrottledError(said, retry_after_seconds=error.retry_after_seconds)
    if error.status == 403 and QUOTA in said:
        return QuotaExhaustedError(said, scope=None if own_quota else ErrorScope.POOL)
    if error.status == 403 and " cannot " in said and " in API group " in said:
        return PermissionDeniedError(f"{said}: grant it to the account that the operator uses there")
    if error.status in BAD_REQUEST:
        return _refused(error, said, hints)
    if error.status == 503:
        return UnavailableError(said, retry_after_seconds=error.retry_after_seconds)
    if error.status == 504 and writes:
        return UnknownOutcomeError(said)
    return InternalError(f"the API server answers {error.status}: {said}")


def _silent(error: ApiError, writes: bool) -> SiteError:
    cause = error.__cause__
    if isinstance(cause, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return UnavailableError(f"the API server's certificate is not accepted (see the kubeconfig): {cause}")
    if writes and not isinstance(cause, aiohttp.ClientConnectorError):
        return UnknownOutcomeError(error.message)
    return UnavailableError(error.message)


def _refused(error: ApiError, said: str, hints: Sequence[Hint]) -> SiteError:
    for hint in hints:
        if hint.text in said:
            return InvalidSpecError(f"{said}: {hint.remedy}")
    if error.status == 409:
        return ConflictError(said)
    if error.status == 404 and "namespaces" not in said:
        return MachineNotFoundError(said)
    return InvalidSpecError(said)
