# SPDX-License-Identifier: Apache-2.0
"""Defines the OCCI status 409: a request that conflicts with the present state of the server.

Where a frontend itself finds a conflict, it raises an error of this module. :class:`ConflictCause` lists all causes.
docs/occi.md (section "Conflicts") shows the same list to clients. The message of each error names the entity and the
remedy. Two modules pass on a 409 that exists already: ``frontend/changes/writing.py`` adds the number of the entity to
the error of a batch, and ``frontend/amqp/cloud4e.py`` forwards the status that a foreign service adapter sent.
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
