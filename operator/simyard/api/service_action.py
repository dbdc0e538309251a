# SPDX-License-Identifier: Apache-2.0
"""Kind ServiceAction: one durable invocation of an action."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from simyard.api.base import (
    ATOMIC,
    ATOMIC_MAP,
    FREE_FORM,
    IMMUTABLE,
    ApiModel,
    Conditions,
    Count,
    Generation,
    Metadata,
    Milliseconds,
    Name,
    Term,
    Time,
    Values,
    add_cel_rules,
    make_cel_rule,
)
from simyard_adapter.digests import MAX_FILE_BYTES
from simyard_adapter.limits import MAX_LOG_PARTS


class ActionTarget(ApiModel):
    """Target of the action: one worker, any free worker of a pool, or any free worker of a service."""

    kind: Annotated[
        Literal["Worker", "WorkerPool", "SimulationService"],
        Field(
            description="Kind of the target. `Worker`: this worker; `WorkerPool`, `SimulationService`: any free worker."
        ),
    ]
    name: Annotated[Name, Field(description="Name of the target, in the same namespace.")]


class ServiceActionSpec(ApiModel):
    """Durable invocation of an action. Only `cancel` and `ttlSecondsAfterFinished` may change."""

    model_config = add_cel_rules(
        make_cel_rule(
            "self.?timeoutSeconds == oldSelf.?timeoutSeconds",
            "is immutable: create another ServiceAction",
            ".timeoutSeconds",
        ),
        make_cel_rule("!oldSelf.cancel || self.cancel", "cannot be undone: create another ServiceAction", ".cancel"),
    )

    target: Annotated[ActionTarget, Field(json_schema_extra=IMMUTABLE)]
    action: Annotated[Term, Field(description="Name of the action.", json_schema_extra=IMMUTABLE)]
    parameters: Annotated[
        Values,
        Field(
            description="Parameters as the service's interface declares them. A file is an object with `file`, its"
            " address, or, where the platform allows it, with `url`. All texts and names together have at most"
            " 1,114,112 characters, where each number counts as 16. Lists and objects nest at most 6 levels deep.",
            json_schema_extra={**FREE_FORM, **IMMUTABLE, **ATOMIC_MAP},
        ),
    ] = {}
    timeout_seconds: Annotated[
        int | None,
        Field(ge=1, le=2_592_000, description="Timeout of the run; by default, and at most, the declared timeout."),
    ] = None
    cancel: Annotated[bool, Field(description="Cancels the invocation when it is set to true.")] = False
    ttl_seconds_after_finished: Annotated[
        int, Field(ge=0, le=31_536_000, description="Time after the end at which the object is deleted.")
    ] = 86_400


class ActionFailure(ApiModel):
    """Cause of the failure."""

    reason: Annotated[str, Field(max_length=128, description="Reason, one word for programs.")]
    message: Annotated[
        str, Field(max_length=16_384, description="Explanation, often the text of the program that failed.")
    ] = ""


class StoredFile(ApiModel):
    """File in the file store."""

    file: Annotated[
        str, Field(max_length=80, pattern="^sha256(-64m)?:[0-9a-f]{64}$", description="Address of the file.")
    ]
    name: Annotated[str, Field(max_length=255, description="Name of the file.")] = ""
    bytes: Annotated[int | None, Field(ge=0, le=MAX_FILE_BYTES, description="Size of the file.")] = None
    media_type: Annotated[str, Field(max_length=127, description="Media type of the file.")] = ""


class ServiceActionStatus(ApiModel):
    """Observed state of the invocation."""

    observed_generation: Generation = 0
    worker: Annotated[str, Field(max_length=253, description="Worker that runs or ran the action.")] = ""
    worker_uid: Annotated[str, Field(max_length=64, description="Uid of this worker.")] = ""
    revision: Annotated[str, Field(max_length=64, description="Revision of this worker.")] = ""
    version: Annotated[
        str, Field(max_length=64, description="Version of the service from which the worker was made.")
    ] = ""
    attempts: Annotated[Count, Field(description="Number of assignments to a worker.")] = 0
    percent: Annotated[int | None, Field(ge=0, le=100, description="Share of the work that is done.")] = None
    progress: Annotated[str, Field(max_length=1024, description="Present step of the work, for people.")] = ""
    started_time: Annotated[Time | None, Field(description="Time at which the worker began the action.")] = None
    finished_time: Annotated[Time | None, Field(description="Time at which the action succeeded or failed.")] = None
    run_milliseconds: Annotated[Milliseconds | None, Field(description="Duration of the run.")] = None
    result: Annotated[
        Any,
        Field(
            json_schema_extra=FREE_FORM,
            description="Result, as the interface declares it; if `resultFile` is set, only the fields that are files.",
        ),
    ] = None
    result_file: Annotated[
        StoredFile | None,
        Field(
            description="JSON file in the file store with the other fields of a result above 64 KiB. `kubectl simyard"
            " results` shows all fields."
        ),
    ] = None
    log: Annotated[
        list[StoredFile],
        Field(
            max_length=MAX_LOG_PARTS,
            json_schema_extra=ATOMIC,
            description="Log of the action in the file store: its parts, in order.",
        ),
    ] = []
    failure: ActionFailure | None = None
    conditions: Conditions = []


class ServiceAction(ApiModel):
    """A ServiceAction is one invocation of an action, with its result. It survives the restart of every process."""

    metadata: Metadata
    spec: ServiceActionSpec
    status: ServiceActionStatus = ServiceActionStatus()
