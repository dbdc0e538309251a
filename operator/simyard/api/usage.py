# SPDX-License-Identifier: Apache-2.0
"""Kind Usage: resources that the machines of a namespace have used, and their cost."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simyard.api.base import ApiModel, Count, Metadata, Milliseconds, Time, map_by

MAX_ROWS = 500
HOUR_MILLISECONDS = 3_600_000

Label = Annotated[str, Field(max_length=63)]


class UsageRow(ApiModel):
    """Past and present use by the workers of one pool, service and site."""

    pool: Annotated[
        Label,
        Field(
            description="Name of the WorkerPool. The row with an empty name is for workers without a pool, and for old"
            " pools."
        ),
    ]
    service: Annotated[Label, Field(description="Name of the SimulationService; empty if the service is unknown.")]
    site: Annotated[Label, Field(description="Name of the CloudSite.")]
    currency: Annotated[str, Field(max_length=3, description="ISO 4217 code of the cost's currency, such as EUR.")]
    worker_milliseconds: Annotated[Milliseconds, Field(description="Sum of the times for which the machines ran.")]
    core_milliseconds: Annotated[
        Milliseconds, Field(description="Sum of these times, each multiplied by the cores of the machine.")
    ]
    licence_milliseconds: Annotated[
        Milliseconds, Field(description="Sum of these times, each multiplied by the licence seats of the machine.")
    ]
    cost_millis: Annotated[int, Field(ge=0, description="Cost in thousandths of the currency, rounded down.")]
    cost_remainder: Annotated[
        int,
        Field(
            ge=0,
            le=HOUR_MILLISECONDS - 1,
            description="Part of the cost that was rounded off, in 3,600,000ths of a thousandth of the currency.",
        ),
    ]
    accounted_until: Annotated[Time, Field(description="Time up to which the sums are complete.")]
    workers: Annotated[
        Count, Field(description="Machines that ran at `accountedUntil`, and are assumed to have run since then.")
    ]
    cores: Annotated[Count, Field(description="Cores of these machines.")]
    licences: Annotated[Count, Field(description="Licence seats of these machines.")]
    hour_cost_millis: Annotated[
        int, Field(ge=0, description="Cost of these machines per hour, in thousandths of the currency.")
    ]


class UsageStatus(ApiModel):
    """Usage of the namespace."""

    workers: Annotated[Count, Field(description="Machines that run, over all rows.")] = 0
    accounted_until: Annotated[Time | None, Field(description="Latest `accountedUntil` of all rows.")] = None
    rows: Annotated[
        list[UsageRow],
        Field(
            max_length=MAX_ROWS,
            json_schema_extra=map_by("pool", "service", "site", "currency"),
            description="Rows of the account, by pool, service, site and currency.",
        ),
    ] = []


class Usage(ApiModel):
    """A Usage is the account of the resources that machines of a namespace have used. Only the platform writes it."""

    metadata: Metadata
    status: UsageStatus = UsageStatus()
