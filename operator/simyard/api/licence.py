# SPDX-License-Identifier: Apache-2.0
"""Kind Licence: seats of a program's licence that services of several namespaces share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simyard.api.base import ATOMIC, ApiModel, Conditions, Count, Generation, Metadata, Name
from simyard.api.cloud_site import AllowedNamespaces


class LicenceSpec(ApiModel):
    """Seats that services share when their `spec.licence.licenceRef` names this licence."""

    seats: Annotated[
        int, Field(ge=0, le=1_000_000, description="Maximum number of Workers at the same time, over all namespaces.")
    ]
    allowed_namespaces: Annotated[
        AllowedNamespaces, Field(description="Namespaces whose services may use the licence.")
    ] = AllowedNamespaces()
    max_seats_per_namespace: Annotated[
        int | None,
        Field(ge=1, le=1_000_000, description="Maximum number of seats of one namespace; by default all seats."),
    ] = None


class SeatsOfNamespace(ApiModel):
    """The seats that one namespace holds."""

    name: Annotated[Name, Field(description="The namespace.")]
    used: Annotated[Count, Field(description="Seats that its Workers hold.")]


MAX_NAMESPACES = 100


class LicenceStatus(ApiModel):
    """Observed state of the licence."""

    observed_generation: Generation = 0
    services: Annotated[Count, Field(description="SimulationServices that refer to the licence.")] = 0
    used: Annotated[Count, Field(description="Seats that Workers occupy.")] = 0
    waiting: Annotated[Count, Field(description="Workers that wait for a seat.")] = 0
    namespaces: Annotated[
        list[SeatsOfNamespace],
        Field(
            max_length=MAX_NAMESPACES,
            json_schema_extra=ATOMIC,
            description=f"The namespaces that hold seats, most seats first; at most {MAX_NAMESPACES}.",
        ),
    ] = []
    conditions: Conditions = []


class Licence(ApiModel):
    """A Licence is a number of seats of a program's licence, and the namespaces that may use them."""

    metadata: Metadata
    spec: LicenceSpec
    status: LicenceStatus = LicenceStatus()
