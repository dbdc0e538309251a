# SPDX-License-Identifier: Apache-2.0
"""Kind Study: many calls of one action with different parameters, as one object."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from simyard.api.base import (
    ATOMIC,
    ATOMIC_MAP,
    FREE_FORM,
    IMMUTABLE,
    NOT_NEGATIVE,
    ApiModel,
    Conditions,
    Count,
    Decimal,
    Generation,
    Metadata,
    Milliseconds,
    Term,
    Time,
    Values,
    add_cel_rules,
    make_cel_rule,
    map_by,
)
from simyard.api.optimisation import OptimisationStatus, OptimisedDesign
from simyard.api.service_action import ActionTarget
from simyard.api.study_axis import MAX_AXES, Axes, Seed
from simyard.api.worker_pool import CountOrPercent

MAX_TASKS = 10_000_000
"""Maximum number of tasks of a study."""
MAX_CHUNKS = 10_000
"""Maximum number of chunks of a study; the status has one bit for each."""
MAX_CHUNK_TASKS = 1_000
"""Maximum number of tasks of a chunk."""
MAX_FAILED_INDEXES = 100
DESIGNS = ("grid", "table", "random", "latinHypercube", "sobol", "halton", "optimise")

Row = Annotated[list[Any], Field(max_length=MAX_AXES, json_schema_extra={**ATOMIC, "items": FREE_FORM})]


class GridDesign(ApiModel):
    """All combinations of the values of the axes. The last axis varies fastest."""

    axes: Axes


class SampledDesign(ApiModel):
    """Samples of the space that the axes span."""

    axes: Axes
    count: Annotated[int, Field(ge=1, le=MAX_TASKS, description="Number of points.")]
    seed: Seed = 0


class TableDesign(ApiModel):
    """Points in a list, or in a file."""

    model_config = add_cel_rules(
        make_cel_rule("has(self.file) != has(self.columns)", "needs either `file`, or `columns` and `rows`", ".file")
    )

    file: Annotated[
        str | None,
        Field(
            pattern="^sha256:[0-9a-f]{64}$",
            max_length=71,
            description="Address of a CSV file of the namespace, of at most 4 MiB. Its header has the names of the"
            " parameters, and each line is a point.",
        ),
    ] = None
    columns: Annotated[
        list[Term] | None,
        Field(min_length=1, max_length=MAX_AXES, json_schema_extra=ATOMIC, description="Names of the parameters."),
    ] = None
    rows: Annotated[
        list[Row] | None,
        Field(
            min_length=1,
            max_length=10_000,
            json_schema_extra=ATOMIC,
            description="Points: for each, a value for each column.",
        ),
    ] = None


class StudyDesign(ApiModel):
    """Points of the study. Exactly one field is set."""

    model_config = add_cel_rules(
        make_cel_rule(
            f"[{', '.join(f'has(self.{name})' for name in DESIGNS)}].filter(given, given).size() == 1",
            f"needs exactly one of {', '.join(DESIGNS)}",
        )
    )

    grid: GridDesign | None = None
    table: TableDesign | None = None
    random: Annotated[SampledDesign | None, Field(description="Independent uniform samples.")] = None
    latin_hypercube: Annotated[
        SampledDesign | None,
        Field(description="Samples that hit each of `count` equal parts of each axis exactly once."),
    ] = None
    sobol: Annotated[SampledDesign | None, Field(description="Sobol sequence: samples that fill the space evenly.")] = (
        None
    )
    halton: Annotated[
        SampledDesign | None, Field(description="Halton sequence: samples that fill the space evenly.")
    ] = None
    optimise: Annotated[
        OptimisedDesign | None, Field(description="Points that an algorithm chooses by the results of earlier points.")
    ] = None


class StopRule(ApiModel):
    """Result of a task that ends the study."""

    model_config = add_cel_rules(
        make_cel_rule("has(self.atMost) != has(self.atLeast)", "needs exactly one of `atMost` and `atLeast`")
    )

    result: Annotated[Term, Field(description="Name of the result, which must be a number.")]
    at_most: Annotated[Decimal | None, Field(description="The study ends at a result of this value or less.")] = None
    at_least: Annotated[Decimal | None, Field(description="The study ends at a result of this value or more.")] = None


class StudyWorkers(ApiModel):
    """Number of workers that the pool has while the study runs, if its own spec asks for fewer."""

    model_config = add_cel_rules(make_cel_rule("self.min <= self.max", "must be at least `min`", ".max"))

    min: Annotated[int, Field(ge=0, le=100_000, description="Least number of workers.")] = 0
    max: Annotated[
        int,
        Field(ge=1, le=100_000, description="Largest number of workers. Towards its end a study needs fewer."),
    ]


class StudySpec(ApiModel):
    """Calls of one action with many points. The fields that decide about results cannot change."""

    model_config = add_cel_rules(
        make_cel_rule("self.?chunkTasks == oldSelf.?chunkTasks", "is immutable: create another Study", ".chunkTasks"),
        make_cel_rule(
            "self.?taskTimeoutSeconds == oldSelf.?taskTimeoutSeconds",
            "is immutable: create another Study",
            ".taskTimeoutSeconds",
        ),
        make_cel_rule("!oldSelf.cancel || self.cancel", "cannot be undone: create another Study", ".cancel"),
        make_cel_rule(
            "!has(self.workers) || self.target.kind == 'WorkerPool'", "needs a WorkerPool as target", ".workers"
        ),
    )

    target: Annotated[ActionTarget, Field(json_schema_extra=IMMUTABLE)]
    action: Annotated[Term, Field(description="Name of the action.", json_schema_extra=IMMUTABLE)]
    parameters: Annotated[
        Values,
        Field(
            description="Parameters that are equal for all tasks. All texts and names together have at most 65,536"
            " characters, where each number counts as 16.",
            json_schema_extra={**FREE_FORM, **IMMUTABLE, **ATOMIC_MAP},
        ),
    ] = {}
    design: Annotated[StudyDesign, Field(json_schema_extra=IMMUTABLE)]
    parallelism: Annotated[
        int | None,
        Field(ge=1, le=100_000, description="Maximum number of workers that run tasks of the study at the same time."),
    ] = None
    workers: StudyWorkers | None = None
    max_cost: Annotated[
        Decimal | None,
        Field(
            description="Cost at which the study ends; its results are kept. The cost is the time of the tasks at the"
            " price of their sites, in the currency of the sites, which must be the same for all.",
            json_schema_extra=NOT_NEGATIVE,
        ),
    ] = None
    chunk_tasks: Annotated[
        int | None,
        Field(
            ge=1,
            le=MAX_CHUNK_TASKS,
            description="Number of tasks that a worker gets at once. By default, a chunk takes about 30 s, as the"
            " first tasks show.",
        ),
    ] = None
    task_timeout_seconds: Annotated[
        int | None,
        Field(ge=1, le=2_592_000, description="Timeout of each task; by default, and at most, the declared timeout."),
    ] = None
    retries_per_task: Annotated[
        int,
        Field(
            ge=0,
            le=10,
            description="Number of times that a failed task is run again.",
            json_schema_extra=IMMUTABLE,
        ),
    ] = 0
    max_failed_tasks: Annotated[
        CountOrPercent,
        Field(
            description="Number of failed tasks above which the study fails: a number, or a percentage of all tasks"
            " (rounded down)."
        ),
    ] = "10%"
    stop_when: Annotated[
        list[StopRule],
        Field(
            max_length=8,
            json_schema_extra={**ATOMIC, **IMMUTABLE},
            description="Results that end the study: it ends when one of them was found.",
        ),
    ] = []
    active_deadline_seconds: Annotated[
        int | None,
        Field(ge=1, le=31_536_000, description="Time after the start at which the study fails if it is not complete."),
    ] = None
    suspend: Annotated[bool, Field(description="While it is true, no further tasks are started.")] = False
    cancel: Annotated[
        bool, Field(description="Cancels the study when it is set to true. Finished tasks keep their results.")
    ] = False
    ttl_seconds_after_finished: Annotated[
        int,
        Field(ge=0, le=31_536_000, description="Time after the end at which the object and its results are deleted."),
    ] = 2_592_000


class TaskFailures(ApiModel):
    """Failed tasks with the same reason."""

    reason: Annotated[str, Field(max_length=128, description="Reason, one word for programs.")]
    count: Annotated[Count, Field(description="Number of failed tasks with this reason.")]
    first_index: Annotated[Count, Field(description="Index of one of these tasks.")]
    message: Annotated[str, Field(max_length=512, description="Explanation of the failure of this task.")] = ""


class StudyStatus(ApiModel):
    """Observed state of the study: sums, but no list of its tasks."""

    observed_generation: Generation = 0
    tasks: Annotated[Count | None, Field(description="Number of tasks.")] = None
    chunk_tasks: Annotated[Count | None, Field(description="Number of tasks of each chunk.")] = None
    succeeded: Annotated[Count, Field(description="Tasks that succeeded.")] = 0
    failed: Annotated[Count, Field(description="Tasks that failed, also those that were interrupted.")] = 0
    running: Annotated[Count, Field(description="Workers that run tasks of the study.")] = 0
    finished_chunks: Annotated[
        str,
        Field(
            max_length=1_668,
            description="Chunks whose results are stored: one bit for each chunk, the first chunk in the lowest bit of"
            " the first byte; base64.",
        ),
    ] = ""
    tasks_per_second: Annotated[str, Field(max_length=32, description="Present rate, a decimal number.")] = ""
    estimated_completion_time: Annotated[
        Time | None, Field(description="Time at which the study is complete if the rate does not change.")
    ] = None
    mean_task_milliseconds: Annotated[Milliseconds | None, Field(description="Mean duration of a task.")] = None
    failures: Annotated[
        list[TaskFailures],
        Field(max_length=10, json_schema_extra=map_by("reason"), description="Failed tasks, by reason."),
    ] = []
    failed_indexes: Annotated[
        list[Count],
        Field(
            max_length=MAX_FAILED_INDEXES,
            json_schema_extra=ATOMIC,
            description=f"Indexes of failed tasks; at most {MAX_FAILED_INDEXES}.",
        ),
    ] = []
    stopped_by: Annotated[
        Count | None, Field(description="Index of the task whose result fulfilled a rule of `stopWhen`.")
    ] = None
    result_bytes: Annotated[int, Field(ge=0, description="Size of the stored results.")] = 0
    cost_millis: Annotated[
        int, Field(ge=0, description="Cost of the tasks that have ended, in thousandths of the sites' currency.")
    ] = 0
    optimisation: Annotated[
        OptimisationStatus | None, Field(description="State of the algorithm of the design `optimise`.")
    ] = None
    rows_name_files: Annotated[
        bool, Field(description="Whether the results of a task can be files, which are kept as long as the study.")
    ] = False
    started_time: Annotated[Time | None, Field(description="Time at which the first tasks were sent.")] = None
    finished_time: Annotated[Time | None, Field(description="Time at which the study ended.")] = None
    conditions: Conditions = []


class Study(ApiModel):
    """A Study calls one action of a service for many points, and keeps all results in the file store."""

    metadata: Metadata
    spec: StudySpec
    status: StudyStatus = StudyStatus()
