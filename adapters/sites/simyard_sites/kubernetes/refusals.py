# SPDX-License-Identifier: Apache-2.0
"""Translates refusals of an API server into errors of the site interface, with field and remedy."""

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
"""The text in refusals of the quota plugin, which runs before the API server checks if the object exists already."""


@dataclass(frozen=True, slots=True)
class Hint:
    """The remedy for refusals that contain ``text``: the wrong field and its correction."""

    text: str
    remedy: str


def make_site_error(
    error: ApiError, *, hints: Sequence[Hint] = (), writes: bool = False, own_quota: bool = True
) -> SiteError:
    """Return the site's error for an answer of the API server, or for a missing answer.

    ``writes`` is true if the request would have changed an object: after a lost answer, the outcome is then unknown.
    ``own_quota`` is true if only this site uses the namespace: its quota is then that of the site. Otherwise, the quota
    concerns only the users of that namespace.
    """
    said = error.message or str(error)
    if error.status == 0:
        return _silent(error, writes)
    if error.status == 401:
        return UnauthenticatedError(f"the API server refuses the credentials: {said}")
    if error.status == 429:
        return ThrottledError(said, retry_after_seconds=error.retry_after_seconds)
    if error.status == 403 and QUOTA in said:
        return QuotaExhaustedError(said, scope=None if own_quota else ErrorScope.POOL)
    if error.status == 403 and " cannot " in said and " in API group " in said:
        return PermissionDeniedError(f"{said}: grant this right to the account that the operator uses in the cluster")
    if error.status in BAD_REQUEST:
        return _refused(error, said, hints)
    if error.status == 503:
        return UnavailableError(said, retry_after_seconds=error.retry_after_seconds)
    if error.status == 504 and writes:
        return UnknownOutcomeError(said)
    return InternalError(f"the API server answered with status {error.status}: {said}")


def _silent(error: ApiError, writes: bool) -> SiteError:
    cause = error.__cause__
    if isinstance(cause, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return UnavailableError(
            f"the API server's certificate is not trusted: set certificate-authority-data in the kubeconfig: {cause}"
        )
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
