"""Licence: seats of a program's licence that services of several namespaces share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simyard.api.base import ApiModel, Conditions, Count, Generation, Metadata
from simyard.api.cloud_site import AllowedNamespaces


class LicenceSpec(ApiModel):
    """The seats that services share when their `spec.licence.licenceRef` names this licence."""

    seats: Annotated[int, Field(ge=0, le=1_000_000, description="Workers at the same time, over all namespaces.")]
    allowed_namespaces: Annotated[AllowedNamespaces, Field(description="The namespaces whose services may use it.")] = (
        AllowedNamespaces()
    )
    max_seats_per_namespace: Annotated[
        int | None, Field(ge=1, le=1_000_000, description="The most seats of one namespace; not set: all of them.")
    ] = None


class LicenceStatus(ApiModel):
    """The observed state of the licence."""

    observed_generation: Generation = 0
    services: Annotated[Count, Field(description="SimulationServices that name it.")] = 0
    used: Annotated[Count, Field(description="Seats that Workers hold.")] = 0
    waiting: Annotated[Count, Field(description="Workers that wait for a seat.")] = 0
    conditions: Conditions = []


class Licence(ApiModel):
    """A Licence is a number of seats that the platform team has for a program, and the namespaces that may use them."""

    metadata: Metadata
    spec: LicenceSpec
    status: LicenceStatus = LicenceStatus()
