# SPDX-License-Identifier: Apache-2.0
"""Kind Worker: one machine that runs one service."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simyard.api.base import (
    ATOMIC,
    ATOMIC_MAP,
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
    add_cel_rules,
    make_cel_rule,
)
from simyard.api.simulation_service import Resources

SshPublicKey = Annotated[str, Field(min_length=1, max_length=8192)]
MAX_ADDRESSES = 16
_MADE_ONCE = ("resources", "userData", "sshPublicKeys")


class WorkerSpec(ApiModel):
    """Desired state of one machine that runs one service."""

    model_config = add_cel_rules(
        *(
            make_cel_rule(
                f"has(self.{field}) == has(oldSelf.{field})",
                "is immutable: delete the Worker and create it again with the new value",
                f".{field}",
            )
            for field in _MADE_ONCE
        ),
        make_cel_rule(
            "!has(oldSelf.restarts) || has(self.restarts) && self.restarts >= oldSelf.restarts",
            "must not decrease",
            ".restarts",
        ),
    )

    service_ref: Annotated[
        LocalReference, Field(description="SimulationService that the worker runs.", json_schema_extra=IMMUTABLE)
    ]
    site: Annotated[Name, Field(description="CloudSite at which the worker runs.", json_schema_extra=IMMUTABLE)]
    power_state: Annotated[
        Literal["Running", "Stopped", "Suspended"], Field(description="Desired state of the machine.")
    ] = "Running"
    restarts: Annotated[
        Count | None,
        Field(description="Desired number of restarts since the Worker was created; increase it by 1 to restart."),
    ] = None
    title: Annotated[str | None, Field(max_length=256, description="Name for people.")] = None
    summary: Annotated[str | None, Field(max_length=1024, description="Purpose, for people.")] = None
    hostname: Annotated[
        str | None,
        Field(max_length=253, description="Host name that the new machine gets; by default the machine's name."),
    ] = None
    resources: Annotated[
        Resources | None,
        Field(description="Size of the machine; by default the size in the service.", json_schema_extra=IMMUTABLE),
    ] = None
    user_data: Annotated[
        str | None,
        Field(
            max_length=65_536,
            description="User data that the machine gets at its first start (cloud-init). Everyone who may read the"
            " Worker can read it, so it must not hold secrets.",
            json_schema_extra=IMMUTABLE,
        ),
    ] = None
    ssh_public_keys: Annotated[
        list[SshPublicKey] | None,
        Field(
            max_length=16,
            json_schema_extra={**ATOMIC, **IMMUTABLE},
            description="Public keys with which users log in to the machine by SSH.",
        ),
    ] = None
    drain: Annotated[bool, Field(description="Makes the worker finish its actions and accept no new actions.")] = False
    attributes: Annotated[
        Values,
        Field(
            description="Initial values of the service's attributes, by name. All texts and names together have at"
            " most 65,536 characters, where each number counts as 16. Lists and objects nest at most 6 levels deep."
        ),
    ] = {}


class Stages(ApiModel):
    """Times at which the worker entered the stages of its start."""

    start: Annotated[Time | None, Field(description="Time of the request for the worker.")] = None
    pending: Annotated[Time | None, Field(description="Time at which the site accepted the request.")] = None
    prolog: Annotated[Time | None, Field(description="Time at which the machine was placed on a host.")] = None
    boot: Annotated[Time | None, Field(description="Time at which the disk was ready.")] = None
    running: Annotated[
        Time | None, Field(description="Time at which the hypervisor reported that the machine runs.")
    ] = None
    registered: Annotated[Time | None, Field(description="Time at which the service adapter registered.")] = None


class WorkerAddress(ApiModel):
    """IP address of a machine, as its site or its guest reports it."""

    address: Annotated[str, Field(min_length=1, max_length=64, description="IPv4 or IPv6 address.")]
    interface: Annotated[
        str | None, Field(max_length=32, description="Name of the network interface in the machine.")
    ] = None
    mac: Annotated[str | None, Field(max_length=32, description="Hardware address of the interface.")] = None


class WorkerStatus(ApiModel):
    """Observed state of the worker."""

    observed_generation: Generation = 0
    machine_id: Annotated[str, Field(max_length=253, description="Id of the machine at the site.")] = ""
    machine_state: Annotated[str, Field(max_length=32, description="State of the machine, as the site reports.")] = ""
    addresses: Annotated[
        list[WorkerAddress],
        Field(
            max_length=MAX_ADDRESSES,
            json_schema_extra=ATOMIC,
            description="Addresses of the machine, if the site reports any.",
        ),
    ] = []
    restarts: Annotated[Count | None, Field(description="Number of restarts that the site has accepted.")] = None
    adapter_version: Annotated[str, Field(max_length=64, description="Version of the service adapter.")] = ""
    stages: Stages = Stages()
    attributes: Annotated[Values, Field(description="Values of the service's attributes, some seconds old.")] = {}
    attributes_time: Annotated[Time | None, Field(description="Time at which these values were observed.")] = None
    conditions: Conditions = []


class Worker(ApiModel):
    """A Worker is one machine that runs one SimulationService; most belong to a WorkerPool."""

    metadata: Metadata
    spec: WorkerSpec
    status: Annotated[WorkerStatus, Field(json_schema_extra=ATOMIC_MAP)] = WorkerStatus()
