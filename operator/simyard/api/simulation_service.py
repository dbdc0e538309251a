"""SimulationService: what a vendor publishes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from simyard.api.base import (
    ATOMIC,
    FREE_FORM,
    ApiModel,
    Conditions,
    Count,
    Decimal,
    Generation,
    Metadata,
    Name,
    Quantity,
    Term,
    cel,
    map_by,
    rules,
)
from simyard.api.frontend import Endpoints, Frontend, FrontendsStatus

RESERVED_ACTIONS = ("start", "stop", "restart", "suspend", "save", "start_workers")
"""Built in for every worker or service (OCCI infrastructure 1.2, and Cloud4E's ``start_workers``)."""

Text = Annotated[str, Field(max_length=1024, description="What it is, for people.")]
Pattern = Annotated[str, Field(max_length=512)]
Argument = Annotated[str, Field(max_length=4096)]
_SEGMENT = "[A-Za-z0-9_][A-Za-z0-9_.-]*"
RelativePath = Annotated[str, Field(min_length=1, max_length=255, pattern=f"^{_SEGMENT}(/{_SEGMENT})*$")]


_VALUE_RULES = (
    cel(
        "!(has(self.minimum) || has(self.maximum)) || self.type in ['integer', 'number']",
        "minimum and maximum are for the types integer and number",
    ),
    cel("!has(self.pattern) || self.type == 'string'", "pattern is for the type string", ".pattern"),
    cel("!has(self.enum) || self.type == 'string'", "enum is for the type string", ".enum"),
    cel(
        "!has(self.maxLength) || self.type in ['string', 'array']",
        "maxLength is for the types string and array",
        ".maxLength",
    ),
)


class DeclaredValue(ApiModel):
    """A typed value: a parameter of an action, or a field of its result."""

    model_config = rules(*_VALUE_RULES)

    name: Annotated[Term, Field(description="Its name: lower case letters, digits, underscores.")]
    type: Annotated[
        Literal["string", "integer", "number", "boolean", "array", "object"], Field(description="Its type in JSON.")
    ]
    description: Text = ""
    unit: Annotated[str, Field(max_length=32, description="The unit of a number, such as mm or MPa.")] = ""
    required: Annotated[bool, Field(description="It must be given: there is no default.")] = False
    default: Annotated[Any, Field(json_schema_extra=FREE_FORM, description="Used when none is given.")] = None
    enum: Annotated[
        list[Annotated[str, Field(max_length=256)]] | None,
        Field(min_length=1, max_length=64, json_schema_extra=ATOMIC, description="The strings that are accepted."),
    ] = None
    pattern: Annotated[
        Pattern | None, Field(description="Regular expression (RE2 syntax) that a string must match as a whole.")
    ] = None
    minimum: Annotated[Decimal | None, Field(description="Smallest number that is accepted.")] = None
    maximum: Annotated[Decimal | None, Field(description="Largest number that is accepted.")] = None
    max_length: Annotated[
        int | None,
        Field(ge=0, le=1_048_576, description="Most characters of a string, or most items of an array."),
    ] = None


class DeclaredAttribute(DeclaredValue):
    """A typed attribute of a running service."""

    mutable: Annotated[bool, Field(description="Clients may set it.")] = False


class DeclaredAction(ApiModel):
    """An action that clients may call; who may call it is RBAC on the subresource actions/NAME."""

    model_config = rules(
        cel(
            f"!(self.name in [{', '.join(repr(name) for name in RESERVED_ACTIONS)}])",
            f"is built in: choose a name other than {', '.join(RESERVED_ACTIONS)}",
            ".name",
        ),
    )

    name: Annotated[Term, Field(description="Its name: lower case letters, digits, underscores.")]
    description: Text = ""
    parameters: Annotated[
        list[DeclaredValue], Field(max_length=64, json_schema_extra=map_by("name"), description="What it takes.")
    ] = []
    result: Annotated[
        list[DeclaredValue], Field(max_length=64, json_schema_extra=map_by("name"), description="What it gives.")
    ] = []
    mode: Annotated[
        Literal["Sync", "Async"],
        Field(description="`Sync` answers the request itself; `Async` answers with a ServiceAction that keeps it."),
    ] = "Sync"
    timeout_seconds: Annotated[
        int,
        Field(ge=1, le=2_592_000, description="It is cancelled after this time. A Sync request waits 30 s."),
    ] = 30
    idempotent: Annotated[
        bool, Field(description="Running it again does no harm: another worker runs it when one dies.")
    ] = False
    concurrent: Annotated[bool, Field(description="It may run while another action runs on the same worker.")] = False


class ServiceInterface(ApiModel):
    """What the program offers; everything that users see is built from it."""

    attributes: Annotated[
        list[DeclaredAttribute],
        Field(max_length=128, json_schema_extra=map_by("name"), description="What clients may read, and some set."),
    ] = []
    actions: Annotated[
        list[DeclaredAction],
        Field(max_length=64, json_schema_extra=map_by("name"), description="What clients may call."),
    ] = []


class PythonConnector(ApiModel):
    """A connector class in Python."""

    class_: Annotated[
        str,
        Field(
            alias="class",
            max_length=255,
            pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$",
            description="MODULE:CLASS, found among `files` or installed in the image.",
        ),
    ]


class InputFile(ApiModel):
    """A file that is written before a command runs."""

    path: Annotated[RelativePath, Field(description="Relative to the command's working directory.")]
    content: Annotated[str, Field(max_length=65536, description="$(PARAMETER) stands for its value.")]


class EnvironmentVariable(ApiModel):
    """A variable in a command's environment."""

    name: Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="Its name.")]
    value: Annotated[Argument, Field(description="$(PARAMETER) stands for its value.")] = ""


class CommandResult(ApiModel):
    """How one field of a result is read after the command."""

    name: Annotated[Term, Field(description="A declared field of the action's result.")]
    file: Annotated[RelativePath | None, Field(description="Where to look; the command's output when not set.")] = None
    pattern: Annotated[Pattern, Field(description="Regular expression; its first group is the value.")]


class CommandAction(ApiModel):
    """How one action is done by a command. Arguments are passed as they are, never through a shell."""

    model_config = rules(
        cel("has(self.command) != has(self.cancels)", "exactly one of command and cancels must be set"),
    )

    action: Annotated[Term, Field(description="A declared action.")]
    command: Annotated[
        list[Argument] | None,
        Field(min_length=1, max_length=64, json_schema_extra=ATOMIC, description="$(PARAMETER) stands for its value."),
    ] = None
    cancels: Annotated[Term | None, Field(description="It runs nothing, it cancels that action.")] = None
    stdin: Annotated[Argument | None, Field(description="What the command reads; $(PARAMETER) as above.")] = None
    files: Annotated[
        list[InputFile],
        Field(max_length=16, json_schema_extra=map_by("path"), description="Written before the command runs."),
    ] = []
    env: Annotated[
        list[EnvironmentVariable],
        Field(max_length=32, json_schema_extra=map_by("name"), description="Added to the command's environment."),
    ] = []
    progress_pattern: Annotated[
        Pattern | None, Field(description="Matched to lines of output; its first group is the percentage done.")
    ] = None
    failure_pattern: Annotated[
        Pattern | None, Field(description="Its match is the message when the command fails.")
    ] = None
    results: Annotated[
        list[CommandResult],
        Field(max_length=64, json_schema_extra=map_by("name"), description="How the result is read."),
    ] = []


class CommandAttribute(ApiModel):
    """How one attribute is read, from a file or from the output of a command."""

    model_config = rules(
        cel("has(self.command) != has(self.file)", "exactly one of command and file must be set"),
    )

    attribute: Annotated[Term, Field(description="A declared attribute.")]
    file: Annotated[RelativePath | None, Field(description="Where to look.")] = None
    command: Annotated[
        list[Argument] | None,
        Field(min_length=1, max_length=64, json_schema_extra=ATOMIC, description="What prints it."),
    ] = None
    pattern: Annotated[Pattern, Field(description="Regular expression; its first group is the value.")]
    interval_seconds: Annotated[int, Field(ge=1, le=86_400, description="How often it is read.")] = 5


class CommandsConnector(ApiModel):
    """A connector with no code: commands for actions, files and patterns for attributes."""

    actions: Annotated[
        list[CommandAction],
        Field(max_length=64, json_schema_extra=map_by("action"), description="How each declared action is done."),
    ] = []
    attributes: Annotated[
        list[CommandAttribute],
        Field(max_length=128, json_schema_extra=map_by("attribute"), description="How attributes are read."),
    ] = []


class ConnectorFile(ApiModel):
    """A file that comes with the connector."""

    path: Annotated[RelativePath, Field(description="Relative to the connector's folder.")]
    content: Annotated[str, Field(max_length=524_288, description="Its text.")]


class Connector(ApiModel):
    """What connects the interface to the program: exactly one of python and commands."""

    model_config = rules(
        cel("has(self.python) != has(self.commands)", "exactly one of python and commands must be set"),
    )

    python: PythonConnector | None = None
    commands: CommandsConnector | None = None
    files: Annotated[
        list[ConnectorFile],
        Field(max_length=32, json_schema_extra=map_by("path"), description="Files that come with it."),
    ] = []


class Images(ApiModel):
    """What a machine is made from, for each provider."""

    pod: Annotated[str | None, Field(max_length=512, description="Container image.")] = None
    kubevirt: Annotated[str | None, Field(max_length=512, description="Image of a containerDisk.")] = None
    open_nebula: Annotated[str | None, Field(max_length=128, description="Name of an image.")] = None
    other: Annotated[str | None, Field(max_length=512, description="For sites whose provider is `other`.")] = None


class Resources(ApiModel):
    """The size of a worker."""

    cpu: Annotated[Quantity, Field(description="Cores.")] = 1
    memory: Annotated[Quantity, Field(description="Memory, in bytes or with a suffix such as Mi.")] = "512Mi"


class LicenceReference(ApiModel):
    """Names a Licence, which is in no namespace."""

    name: Annotated[Name, Field(max_length=63, description="Name of a Licence, which the platform team keeps.")]


class ServiceLicence(ApiModel):
    """A limit that comes with the program's licence: each worker takes a seat as long as it exists."""

    model_config = rules(
        cel("has(self.seats) != has(self.licenceRef)", "give either seats or licenceRef, and not both"),
    )

    seats: Annotated[
        int | None,
        Field(ge=0, le=1_000_000, description="Workers of this service at the same time, over all its pools."),
    ] = None
    licence_ref: Annotated[
        LicenceReference | None, Field(description="The seats are those of this Licence, shared with other services.")
    ] = None


class SimulationServiceSpec(ApiModel):
    """A simulation program as a service."""

    model_config = rules(
        cel(
            "!has(self.connector.commands) || self.connector.commands.actions.all(done,"
            " self.interface.actions.exists(declared, declared.name == done.action)"
            " && (!has(done.cancels) || self.interface.actions.exists(declared, declared.name == done.cancels)))",
            "names an action that spec.interface.actions does not declare",
            ".connector.commands.actions",
        ),
        cel(
            "!has(self.connector.commands) || self.interface.actions.all(declared,"
            " self.connector.commands.actions.exists(done, done.action == declared.name))",
            "lacks an action that spec.interface.actions declares",
            ".connector.commands.actions",
        ),
        cel(
            "!has(self.connector.commands) || self.connector.commands.attributes.all(found,"
            " self.interface.attributes.exists(declared, declared.name == found.attribute))",
            "names an attribute that spec.interface.attributes does not declare",
            ".connector.commands.attributes",
        ),
    )

    display_name: Annotated[str, Field(max_length=128, description="The service's name for people.")] = ""
    description: Annotated[str, Field(max_length=4096, description="What it does, for people.")] = ""
    vendor: Annotated[str, Field(max_length=128, description="Who offers it.")] = ""
    version: Annotated[str, Field(max_length=64, description="Version of the program.")] = ""
    interface: ServiceInterface
    connector: Connector
    images: Images = Images()
    resources: Resources = Resources()
    readiness_deadline_seconds: Annotated[
        int, Field(ge=1, le=86_400, description="A worker that has not registered by then is replaced.")
    ] = 600
    frontend: Frontend | None = None
    licence: ServiceLicence | None = None


class LicenceStatus(ApiModel):
    """The seats of the service's licence, over all services that share it."""

    seats: Annotated[Count, Field(description="How many there are.")]
    taken: Annotated[Count, Field(description="How many are taken, here and by others.")]
    waiting: Annotated[Count, Field(description="Workers that wait for a seat.")]


class SimulationServiceStatus(ApiModel):
    """The observed state of the service."""

    observed_generation: Generation = 0
    interface_digest: Annotated[str, Field(max_length=64, description="Changes with the interface.")] = ""
    pools: Annotated[Count, Field(description="WorkerPools of this service.")] = 0
    workers: Annotated[Count, Field(description="Workers of this service.")] = 0
    ready_workers: Annotated[Count, Field(description="Workers that take actions.")] = 0
    licence: LicenceStatus | None = None
    frontends: FrontendsStatus | None = None
    endpoints: Endpoints = []
    conditions: Conditions = []


class SimulationService(ApiModel):
    """A SimulationService says what a vendor's program offers (attributes, actions) and how it is started."""

    metadata: Metadata
    spec: SimulationServiceSpec
    status: SimulationServiceStatus = SimulationServiceStatus()
