"""A cloud emulated on the operator's machine."""

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
    """How long a machine of an emulated site stays in each stage of its start, beside what it has to wait for."""

    pending_milliseconds: Annotated[UpToADay | None, Field(description="Until it is placed on a host.")] = None
    prolog_milliseconds: Annotated[UpToADay | None, Field(description="Until its disk is ready.")] = None
    boot_milliseconds: Annotated[UpToADay | None, Field(description="Until the hypervisor says that it runs.")] = None


class EmulatedApi(ApiModel):
    """The front end of an emulated site: calls are served one after the other; what is too much is refused."""

    call_milliseconds: Annotated[UpToADay | None, Field(description="What each call takes.")] = None
    item_milliseconds: Annotated[UpToADay | None, Field(description="What each item of a call takes in addition.")] = (
        None
    )
    calls_in_flight: Annotated[
        UpToAMillion | None, Field(description="Calls under way at once; more are refused. 0: any number.")
    ] = None
    creates_per_second: Annotated[
        UpToAMillion | None, Field(description="Machines created per second; more are refused. 0: any number.")
    ] = None
    create_burst: Annotated[
        int | None, Field(ge=1, le=1_000_000, description="Machines created at once after a pause.")
    ] = None
    retry_after_milliseconds: Annotated[
        UpToADay | None, Field(description="When to come again, as a refusal says it. 0: it does not.")
    ] = None


class EmulatedController(ApiModel):
    """What stands between the front end and the scheduler of an emulated site: a client with a rate of its own."""

    requests_per_second: Annotated[UpToAMillion | None, Field(description="Its requests. 0: any number.")] = None
    request_burst: Annotated[UpToAMillion | None, Field(description="Its requests at once after a pause.")] = None
    requests_per_machine: Annotated[UpToAMillion | None, Field(description="Its requests for each machine.")] = None


class EmulatedScheduler(ApiModel):
    """What places the machines of an emulated site on hosts."""

    interval_milliseconds: Annotated[UpToADay | None, Field(description="Time between two runs. 0: at once.")] = None
    machines_per_interval: Annotated[
        UpToAMillion | None, Field(description="Machines that one run places. 0: any number.")
    ] = None
    machines_per_host_and_interval: Annotated[
        UpToAMillion | None, Field(description="Machines that one run places on one host. 0: any number.")
    ] = None


class EmulatedDrivers(ApiModel):
    """What carries out the operations on the hosts of an emulated site."""

    threads: Annotated[UpToTenThousand | None, Field(description="Operations at once. 0: any number.")] = None
    operation_milliseconds: Annotated[
        UpToADay | None, Field(description="How long a machine's operation keeps a thread and its host busy.")
    ] = None


class EmulatedHosts(ApiModel):
    """The hosts of an emulated site."""

    count: Annotated[UpToTenThousand | None, Field(description="How many. 0: they do not matter.")] = None
    operations_per_host: Annotated[
        UpToTenThousand | None, Field(description="Operations at once on a host. 0: any number.")
    ] = None
    machines_per_host: Annotated[
        UpToAMillion | None, Field(description="Machines that a host has room for. 0: any number.")
    ] = None


class EmulatedProvider(ApiModel):
    """A cloud emulated on the operator's machine, with real adapters as guests; what is not given is as its profile."""

    guests: Annotated[
        Literal["process", "shared"],
        Field(description="`process`: one adapter process per machine. `shared`: all adapters in one process."),
    ] = "process"
    profile: Annotated[
        EmulatedProfile,
        Field(description="A cloud that was measured, as docs/emulated-clouds.md says; `instant` takes no time."),
    ] = "instant"
    time_scale_percent: Annotated[
        int, Field(ge=1, le=1000, description="Scales all times and rates: 10 is ten times as fast.")
    ] = 100
    latencies: Latencies | None = None
    api: EmulatedApi | None = None
    controller: EmulatedController | None = None
    scheduler: EmulatedScheduler | None = None
    drivers: EmulatedDrivers | None = None
    hosts: EmulatedHosts | None = None
    jitter_percent: Annotated[Percent | None, Field(description="Each latency varies by up to this share.")] = None
    failure_percent: Annotated[Percent | None, Field(description="This share of the machines fails to boot.")] = None
    lost_events_percent: Annotated[
        Percent | None, Field(description="Of this share of the changes nobody is told, until a snapshot 30 s later.")
    ] = None
    lost_answers_percent: Annotated[
        Percent | None, Field(description="This share of creates and deletes is carried out and never answered.")
    ] = None
