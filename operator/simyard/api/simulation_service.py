# SPDX-License-Identifier: Apache-2.0
"""Kind SimulationService: a simulation program that a vendor publishes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

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
    Pattern,
    Quantity,
    Term,
    add_cel_rules,
    make_cel_rule,
    map_by,
)
from simyard.api.connector import Connector
from simyard.api.frontend import Endpoints, Frontend, FrontendsStatus
from simyard_adapter.declarations import ValueType
from simyard_adapter.digests import MAX_FILE_BYTES

RESERVED_ACTIONS = ("start", "stop", "restart", "suspend", "save", "start_workers")
"""Names of built-in actions, which a service cannot declare (OCCI infrastructure 1.2, Cloud4E's ``start_workers``)."""

Text = Annotated[str, Field(max_length=1024, description="Meaning, for people.")]
MEDIA_TYPE = r"^[a-z0-9.+-]+/[a-z0-9.+-]+$"


_VALUE_RULES = (
    make_cel_rule(
        "!(has(self.minimum) || has(self.maximum)) || self.type in ['integer', 'number']",
        "minimum and maximum are only for the types integer and number",
    ),
    make_cel_rule("!has(self.pattern) || self.type == 'string'", "is only for the type string", ".pattern"),
    make_cel_rule("!has(self.enum) || self.type == 'string'", "is only for the type string", ".enum"),
    make_cel_rule(
        "!has(self.maxLength) || self.type in ['string', 'array']",
        "is only for the types string and array",
        ".maxLength",
    ),
    make_cel_rule("!has(self.items) || self.type == 'array'", "is only for the type array", ".items"),
    make_cel_rule(
        "!(has(self.mediaType) || has(self.maxBytes)) || self.type == 'file' || has(self.items)",
        "mediaType and maxBytes are only for the type file and for arrays of files",
    ),
)


VALUE_TYPES = [kind.value for kind in ValueType]


def _check_type(name: str) -> str:
    if name not in VALUE_TYPES:
        raise ValueError(f"must be one of: {', '.join(VALUE_TYPES)}")
    return name


class DeclaredItems(ApiModel):
    """Type of the items of an array."""

    type: Annotated[Literal["file"], Field(description="Type of each item.")]


class DeclaredValue(ApiModel):
    """Typed value: a parameter of an action, or a field of its result."""

    model_config = add_cel_rules(*_VALUE_RULES)

    name: Annotated[Term, Field(description="Name: lower case letters, digits, underscores.")]
    type: Annotated[
        str,
        AfterValidator(_check_type),
        Field(
            json_schema_extra={"enum": VALUE_TYPES},
            description="Type in JSON; `file` is an object whose field `file` is the address of an uploaded file."
            " OCCI shows an attribute or a result that is a file as the path `/files/ADDRESS`;"
            " GET redirects to its content.",
        ),
    ]
    description: Text = ""
    unit: Annotated[str, Field(max_length=32, description="Unit of a number, such as mm or MPa.")] = ""
    required: Annotated[bool, Field(description="Makes a value obligatory.")] = False
    default: Annotated[Any, Field(json_schema_extra=FREE_FORM, description="Value if the caller gives no value.")] = (
        None
    )
    enum: Annotated[
        list[Annotated[str, Field(max_length=256)]] | None,
        Field(min_length=1, max_length=64, json_schema_extra=ATOMIC, description="Strings that are accepted."),
    ] = None
    pattern: Annotated[
        Pattern | None, Field(description="Regular expression (RE2 syntax) that a string must match as a whole.")
    ] = None
    minimum: Annotated[Decimal | None, Field(description="Smallest number that is accepted.")] = None
    maximum: Annotated[Decimal | None, Field(description="Largest number that is accepted.")] = None
    max_length: Annotated[
        int | None,
        Field(ge=0, le=1_048_576, description="Maximum number of characters of a string, or of items of an array."),
    ] = None
    items: Annotated[
        DeclaredItems | None, Field(description="Type of the items of an array. By default an item may be any value.")
    ] = None
    media_type: Annotated[
        str | None, Field(max_length=127, pattern=MEDIA_TYPE, description="Media type of a file, such as text/csv.")
    ] = None
    max_bytes: Annotated[
        int | None, Field(ge=0, le=MAX_FILE_BYTES, description="Maximum number of bytes of each file.")
    ] = None


class DeclaredAttribute(DeclaredValue):
    """Typed attribute of a running service."""

    model_config = add_cel_rules(
        *_VALUE_RULES,
        make_cel_rule(
            "!has(self.mutable) || !self.mutable || self.type != 'file' && !has(self.items)",
            "a file cannot be mutable: clients pass files as parameters of actions",
            ".mutable",
        ),
    )

    mutable: Annotated[bool, Field(description="Permits clients to set the attribute.")] = False


class DeclaredAction(ApiModel):
    """Action that clients call; RBAC on the subresource `actions/NAME` decides who may call it."""

    model_config = add_cel_rules(
        make_cel_rule(
            f"!(self.name in [{', '.join(repr(name) for name in RESERVED_ACTIONS)}])",
            f"is the name of a built-in action: choose a name other than {', '.join(RESERVED_ACTIONS)}",
            ".name",
        ),
    )

    name: Annotated[Term, Field(description="Name: lower case letters, digits, underscores.")]
    description: Text = ""
    parameters: Annotated[
        list[DeclaredValue],
        Field(max_length=64, json_schema_extra=map_by("name"), description="Parameters of the action."),
    ] = []
    result: Annotated[
        list[DeclaredValue],
        Field(max_length=64, json_schema_extra=map_by("name"), description="Fields of the action's result."),
    ] = []
    mode: Annotated[
        Literal["Sync", "Async"],
        Field(
            description="`Sync`: the answer to a request is the result. `Async`: the answer is a ServiceAction, which"
            " later has the result."
        ),
    ] = "Sync"
    timeout_seconds: Annotated[
        int,
        Field(ge=1, le=2_592_000, description="Time after which the action is cancelled. A Sync request waits 30 s."),
    ] = 30
    idempotent: Annotated[
        bool,
        Field(
            description="States that a second run does no harm. If a worker is lost, another worker then runs its"
            " action again."
        ),
    ] = False
    concurrent: Annotated[
        bool, Field(description="Permits a worker to run the action at the same time as other actions.")
    ] = False


class ServiceInterface(ApiModel):
    """Attributes and actions of the program; the API that users see is built from them."""

    attributes: Annotated[
        list[DeclaredAttribute],
        Field(
            max_length=128,
            json_schema_extra=map_by("name"),
            description="Attributes that clients read, and set if they are mutable.",
        ),
    ] = []
    actions: Annotated[
        list[DeclaredAction],
        Field(max_length=64, json_schema_extra=map_by("name"), description="Actions that clients call."),
    ] = []


class Images(ApiModel):
    """Images from which machines are made, for each provider."""

    pod: Annotated[str | None, Field(max_length=512, description="Container image.")] = None
    kubevirt: Annotated[str | None, Field(max_length=512, description="Image of a containerDisk.")] = None
    open_nebula: Annotated[str | None, Field(max_length=128, description="Name of an image.")] = None
    other: Annotated[str | None, Field(max_length=512, description="Image for sites whose provider is `other`.")] = None


class Resources(ApiModel):
    """Size of a worker."""

    cpu: Annotated[Quantity, Field(description="Number of cores.")] = 1
    memory: Annotated[Quantity, Field(description="Memory, in bytes or with a suffix such as Mi.")] = "512Mi"


class LicenceReference(ApiModel):
    """Reference to a Licence, which is cluster-scoped."""

    name: Annotated[Name, Field(max_length=63, description="Name of a Licence of the platform team.")]


class ServiceLicence(ApiModel):
    """Limit of the program's licence: each worker occupies a seat as long as it exists."""

    model_config = add_cel_rules(
        make_cel_rule("has(self.seats) != has(self.licenceRef)", "exactly one of seats and licenceRef must be set"),
    )

    seats: Annotated[
        int | None,
        Field(
            ge=0,
            le=1_000_000,
            description="Maximum number of Workers of this service at the same time, over all pools.",
        ),
    ] = None
    licence_ref: Annotated[
        LicenceReference | None, Field(description="Licence whose seats this service shares with other services.")
    ] = None


class SimulationServiceSpec(ApiModel):
    """Definition of a simulation program as a service."""

    model_config = add_cel_rules(
        make_cel_rule(
            "!has(self.connector.commands) || self.connector.commands.actions.all(done,"
            " self.interface.actions.exists(declared, declared.name == done.action)"
            " && (!has(done.cancels) || self.interface.actions.exists(declared, declared.name == done.cancels)))",
            "names an action that spec.interface.actions does not declare",
            ".connector.commands.actions",
        ),
        make_cel_rule(
            "!has(self.connector.commands) || self.interface.actions.all(declared,"
            " self.connector.commands.actions.exists(done, done.action == declared.name))",
            "lacks an action that spec.interface.actions declares",
            ".connector.commands.actions",
        ),
        make_cel_rule(
            "!has(self.connector.commands) || self.connector.commands.attributes.all(found,"
            " self.interface.attributes.exists(declared, declared.name == found.attribute))",
            "names an attribute that spec.interface.attributes does not declare",
            ".connector.commands.attributes",
        ),
    )

    display_name: Annotated[str, Field(max_length=128, description="Name of the service for people.")] = ""
    description: Annotated[str, Field(max_length=4096, description="Purpose of the service, for people.")] = ""
    vendor: Annotated[str, Field(max_length=128, description="Name of the vendor.")] = ""
    version: Annotated[str, Field(max_length=64, description="Version of the program.")] = ""
    interface: ServiceInterface
    connector: Connector
    images: Images = Images()
    resources: Resources = Resources()
    readiness_deadline_seconds: Annotated[
        int, Field(ge=1, le=86_400, description="Timeout for the registration of a worker; afterwards it is replaced.")
    ] = 600
    frontend: Frontend | None = None
    licence: ServiceLicence | None = None


class LicenceStatus(ApiModel):
    """Seats of the service's licence, over all services that share it."""

    seats: Annotated[Count, Field(description="Number of seats.")]
    taken: Annotated[Count, Field(description="Seats that are occupied, by workers of this and other services.")]
    waiting: Annotated[Count, Field(description="Workers that wait for a seat.")]


class SimulationServiceStatus(ApiModel):
    """Observed state of the service."""

    observed_generation: Generation = 0
    interface_digest: Annotated[str, Field(max_length=64, description="Hash of the interface.")] = ""
    pools: Annotated[Count, Field(description="WorkerPools of this service.")] = 0
    workers: Annotated[Count, Field(description="Workers of this service.")] = 0
    ready_workers: Annotated[Count, Field(description="Workers that accept actions.")] = 0
    licence: LicenceStatus | None = None
    frontends: FrontendsStatus | None = None
    endpoints: Endpoints = []
    conditions: Conditions = []


class SimulationService(ApiModel):
    """A SimulationService declares the attributes and actions of a vendor's program, and how the program is started."""

    metadata: Metadata
    spec: SimulationServiceSpec
    status: SimulationServiceStatus = SimulationServiceStatus()
