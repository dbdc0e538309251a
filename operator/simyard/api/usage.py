"""Usage: what the machines of a namespace have used, and cost."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simyard.api.base import ApiModel, Count, Metadata, Milliseconds, Time, map_by

MOST_ROWS = 500
HOUR_MILLISECONDS = 3_600_000

Label = Annotated[str, Field(max_length=63)]


class UsageRow(ApiModel):
    """What the workers of one pool, service and site have used, and what they use now."""

    pool: Annotated[Label, Field(description="The WorkerPool; empty: workers of no pool, and old pools in one row.")]
    service: Annotated[Label, Field(description="The SimulationService; empty where it could not be known any more.")]
    site: Annotated[Label, Field(description="The CloudSite.")]
    currency: Annotated[str, Field(max_length=3, description="Of the cost: ISO 4217 code, such as EUR.")]
    worker_milliseconds: Annotated[Milliseconds, Field(description="Time for which its machines ran, added up.")]
    core_milliseconds: Annotated[Milliseconds, Field(description="The same, times the cores of each.")]
    licence_milliseconds: Annotated[Milliseconds, Field(description="The same, times the licence seats of each.")]
    cost_millis: Annotated[
        int, Field(ge=0, description="What that cost, in thousandths of the currency, rounded down.")
    ]
    cost_remainder: Annotated[
        int,
        Field(
            ge=0,
            le=HOUR_MILLISECONDS - 1,
            description="What was rounded off, in 3,600,000ths of a thousandth, so that nothing is ever lost.",
        ),
    ]
    accounted_until: Annotated[Time, Field(description="Everything up to then is in the figures.")]
    workers: Annotated[Count, Field(description="Machines that ran then, and are taken to run since.")]
    cores: Annotated[Count, Field(description="Their cores.")]
    licences: Annotated[Count, Field(description="Their licence seats.")]
    hour_cost_millis: Annotated[int, Field(ge=0, description="What they cost per hour, in thousandths.")]


class UsageStatus(ApiModel):
    """What was used."""

    workers: Annotated[Count, Field(description="Machines that run, over all rows.")] = 0
    accounted_until: Annotated[Time | None, Field(description="The latest time of a row.")] = None
    rows: Annotated[
        list[UsageRow],
        Field(
            max_length=MOST_ROWS,
            json_schema_extra=map_by("pool", "service", "site", "currency"),
            description="By pool, service, site and currency.",
        ),
    ] = []


class Usage(ApiModel):
    """A Usage is the account of a namespace: what its machines have used. Only the platform writes it."""

    metadata: Metadata
    status: UsageStatus = UsageStatus()
