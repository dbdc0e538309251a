"""Worker: one machine that runs one service."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simyard.api.base import (
    ATOMIC,
    IMMUTABLE,
    ApiModel,
    Conditions,
    Count,
    Generation,
    LocalReference,
    Metadata,
    Name,
    Time,
    Values,
    cel,
    rules,
)
from simyard.api.simulation_service import Resources

SshPublicKey = Annotated[str, Field(min_length=1, max_length=8192)]
MAX_ADDRESSES = 16
_MADE_ONCE = ("resources", "userData", "sshPublicKeys")


class WorkerSpec(ApiModel):
    """One machine that runs one service."""

    model_config = rules(
        *(cel(f"has(self.{field}) == has(oldSelf.{field})", "is immutable", f".{field}") for field in _MADE_ONCE),
        cel(
            "!has(oldSelf.restarts) || has(self.restarts) && self.restarts >= oldSelf.restarts",
            "cannot be less",
            ".restarts",
        ),
    )

    service_ref: Annotated[LocalReference, Field(description="The SimulationService.", json_schema_extra=IMMUTABLE)]
    site: Annotated[Name, Field(description="The CloudSite it runs at.", json_schema_extra=IMMUTABLE)]
    power_state: Annotated[
        Literal["Running", "Stopped", "Suspended"], Field(description="What the machine should do.")
    ] = "Running"
    restarts: Annotated[
        Count | None,
        Field(description="How often its machine is to be restarted in all: one more, and it is restarted once more."),
    ] = None
    title: Annotated[str | None, Field(max_length=256, description="Its name for people.")] = None
    summary: Annotated[str | None, Field(max_length=1024, description="What it is there for.")] = None
    hostname: Annotated[
        str | None,
        Field(max_length=253, description="The host name that its machine is given when it is made; default: its own."),
    ] = None
    resources: Annotated[
        Resources | None,
        Field(description="The size of its machine; the service's by default.", json_schema_extra=IMMUTABLE),
    ] = None
    user_data: Annotated[
        str | None,
        Field(
            max_length=65_536,
            description="What its machine is told at its first start (cloud-init). Who may read the Worker reads it:"
            " no secrets.",
            json_schema_extra=IMMUTABLE,
        ),
    ] = None
    ssh_public_keys: Annotated[
        list[SshPublicKey] | None,
        Field(
            max_length=16,
            json_schema_extra={**ATOMIC, **IMMUTABLE},
            description="Keys that may log in to its machine by SSH.",
        ),
    ] = None
    drain: Annotated[bool, Field(description="It finishes what it runs and takes nothing new.")] = False
    attributes: Annotated[
        Values,
        Field(
            description="Initial values of the service's attributes, by name. At most 65,536 characters of texts and"
            " names in all, where each number counts as 16, and lists and objects nest at most 6 deep."
        ),
    ] = {}


class Stages(ApiModel):
    """When the worker entered each stage of its start."""

    start: Annotated[Time | None, Field(description="It was asked for.")] = None
    pending: Annotated[Time | None, Field(description="The site accepted the request.")] = None
    prolog: Annotated[Time | None, Field(description="It was placed on a host.")] = None
    boot: Annotated[Time | None, Field(description="Its disk was ready.")] = None
    running: Annotated[Time | None, Field(description="The hypervisor said that it runs.")] = None
    registered: Annotated[Time | None, Field(description="Its service adapter's message arrived.")] = None


class WorkerAddress(ApiModel):
    """An IP address of a machine, as its site or its guest says."""

    address: Annotated[str, Field(min_length=1, max_length=64, description="IPv4 or IPv6.")]
    interface: Annotated[
        str | None, Field(max_length=32, description="The name of its network interface in the machine.")
    ] = None
    mac: Annotated[str | None, Field(max_length=32, description="The hardware address of the interface.")] = None


class WorkerStatus(ApiModel):
    """The observed state of the worker."""

    observed_generation: Generation = 0
    machine_id: Annotated[str, Field(max_length=253, description="Its id at the site.")] = ""
    machine_state: Annotated[str, Field(max_length=32, description="What the site says of the machine.")] = ""
    addresses: Annotated[
        list[WorkerAddress],
        Field(
            max_length=MAX_ADDRESSES,
            json_schema_extra=ATOMIC,
            description="The addresses of its machine, where the site says any.",
        ),
    ] = []
    restarts: Annotated[Count | None, Field(description="How many restarts its site has accepted.")] = None
    adapter_version: Annotated[str, Field(max_length=64, description="Version of the service adapter in it.")] = ""
    stages: Stages = Stages()
    attributes: Annotated[Values, Field(description="The service's attributes, up to some seconds old.")] = {}
    attributes_time: Annotated[Time | None, Field(description="When they were observed.")] = None
    conditions: Conditions = []


class Worker(ApiModel):
    """A Worker is one machine that runs one SimulationService; most belong to a WorkerPool."""

    metadata: Metadata
    spec: WorkerSpec
    status: WorkerStatus = WorkerStatus()
