# SPDX-License-Identifier: Apache-2.0
"""Defines the OCCI status 409: a request that conflicts with the present state of the server.

Only this module creates errors with the status 409. :class:`ConflictCause` lists all causes, and docs/occi.md (section
"Conflicts") shows the same list to clients. The message of each error names the entity and the remedy.
"""

from __future__ import annotations

from enum import StrEnum

from simyard.occi.errors import OcciError


class ConflictCause(StrEnum):
    """The cause of a 409. Its value is the name in docs/occi.md."""

    LOCATION_IN_USE = "location in use"
    ID_IN_USE = "id in use"
    FIXED_AT_CREATION = "fixed at creation"
    SERVICE_GONE = "service gone"
    NO_FREE_SEAT = "no free seat"
    AMBIGUOUS_COMPONENT = "ambiguous component"
    TOO_MANY_MEMBERS = "too many members"
    CONCURRENT_CHANGE = "concurrent change"


class OcciConflictError(OcciError):
    """A request that conflicts with the present state of the server: status 409, for the given ``cause``."""

    def __init__(self, cause: ConflictCause, message: str) -> None:
        super().__init__(409, message)
        self.cause = cause
