# SPDX-License-Identifier: Apache-2.0
"""Settings of a cloud that is emulated on the operator's machine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simyard.api.base import ApiModel

UpToADay = Annotated[int, Field(ge=0, le=86_400_000)]
UpToAMillion = Annotated[int, Field(ge=0, le=1_000_000)]
UpToTenThousand = Annotated[int, Field(ge=0, le=10_000)]
Percent = Annotated[int, Field(ge=0, le=100)]

EmulatedProfile = Literal[
    "instant",
    "cloud4e-2014",
    "opennebula-2015-default",
    "opennebula-2015-tuned",
    "kubevirt-default",
    "kubevirt-tuned",
]


class Latencies(ApiModel):
    """Duration of each stage in the start of an emulated machine, without waits for other machines."""

    pending_milliseconds: Annotated[
        UpToADay | None, Field(description="Time until the machine is placed on a host.")
    ] = None
    prolog_milliseconds: Annotated[UpToADay | None, Field(description="Time until the machine's disk is ready.")] = None
    boot_milliseconds: Annotated[
        UpToADay | None, Field(description="Time until the hypervisor reports that the machine runs.")
    ] = None


class EmulatedApi(ApiModel):
    """Front end of an emulated site: it serves calls one after the other and refuses calls above its limits."""

    call_milliseconds: Annotated[UpToADay | None, Field(description="Duration of each call.")] = None
    item_milliseconds: Annotated[UpToADay | None, Field(description="Additional duration per item of a call.")] = None
    calls_in_flight: Annotated[
        UpToAMillion | None,
        Field(description="Maximum number of calls at the same time; others are refused. 0: no limit."),
    ] = None
    creates_per_second: Annotated[
        UpToAMillion | None, Field(description="Maximum rate of machine creations; others are refused. 0: no limit.")
    ] = None
    create_burst: Annotated[
        int | None, Field(ge=1, le=1_000_000, description="Maximum number of machines created at once after a pause.")
    ] = None
    retry_after_milliseconds: Annotated[
        UpToADay | None, Field(description="Delay before a retry, as a refusal names it. 0: refusals name no delay.")
    ] = None


class EmulatedController(ApiModel):
    """Client between the front end and the scheduler of an emulated site, with its own rate limit."""

    requests_per_second: Annotated[UpToAMillion | None, Field(description="Maximum rate of requests. 0: no limit.")] = (
        None
    )
    request_burst: Annotated[
        UpToAMillion | None, Field(description="Maximum number of requests at once after a pause.")
    ] = None
    requests_per_machine: Annotated[UpToAMillion | None, Field(description="Number of requests for each machine.")] = (
        None
    )


class EmulatedScheduler(ApiModel):
    """Scheduler that places the machines of an emulated site on hosts."""

    interval_milliseconds: Annotated[
        UpToADay | None, Field(description="Time between two runs of the scheduler. 0: it runs at once.")
    ] = None
    machines_per_interval: Annotated[
        UpToAMillion | None, Field(description="Maximum number of machines that one run places. 0: no limit.")
    ] = None
    machines_per_host_and_interval: Annotated[
        UpToAMillion | None,
        Field(description="Maximum number of machines that one run places on one host. 0: no limit."),
    ] = None


class EmulatedDrivers(ApiModel):
    """Drivers that carry out the operations on the hosts of an emulated site."""

    threads: Annotated[
        UpToTenThousand | None, Field(description="Maximum number of operations at the same time. 0: no limit.")
    ] = None
    operation_milliseconds: Annotated[
        UpToADay | None,
        Field(description="Time for which a machine's operation occupies a thread and a place on its host."),
    ] = None


class EmulatedHosts(ApiModel):
    """Hosts of an emulated site."""

    count: Annotated[UpToTenThousand | None, Field(description="Number of hosts. 0: hosts impose no limit.")] = None
    operations_per_host: Annotated[
        UpToTenThousand | None,
        Field(description="Maximum number of operations at the same time on a host. 0: no limit."),
    ] = None
    machines_per_host: Annotated[
        UpToAMillion | None, Field(description="Number of machines that a host has room for. 0: no limit.")
    ] = None


class EmulatedProvider(ApiModel):
    """Cloud emulated on the operator's machine, with real adapters as guests. Absent settings come from the profile."""

    guests: Annotated[
        Literal["process", "shared"],
        Field(
            description="Processes of the guests. `process`: each machine has its own adapter process. `shared`: one"
            " process runs all adapters."
        ),
    ] = "process"
    profile: Annotated[
        EmulatedProfile,
        Field(
            description="Measured cloud whose behaviour is reproduced, see docs/emulated-clouds.md; `instant` takes no"
            " time."
        ),
    ] = "instant"
    time_scale_percent: Annotated[
        int, Field(ge=1, le=1000, description="Scale of all times and rates: 10 is ten times as fast.")
    ] = 100
    latencies: Latencies | None = None
    api: EmulatedApi | None = None
    controller: EmulatedController | None = None
    scheduler: EmulatedScheduler | None = None
    drivers: EmulatedDrivers | None = None
    hosts: EmulatedHosts | None = None
    jitter_percent: Annotated[Percent | None, Field(description="Maximum random variation of each latency.")] = None
    failure_percent: Annotated[Percent | None, Field(description="Share of machines that fail to boot.")] = None
    lost_events_percent: Annotated[
        Percent | None, Field(description="Share of changes that the site reports only in a snapshot 30 s later.")
    ] = None
    lost_answers_percent: Annotated[
        Percent | None, Field(description="Share of creates and deletes that are carried out but not answered.")
    ] = None
