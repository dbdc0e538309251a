"""OcciMixin and OcciLink: what clients of the OCCI frontends define, kept where every frontend sees it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from simyard.api.base import ATOMIC, FREE_FORM, IMMUTABLE, SET, ApiModel, Metadata, Values, map_by

URI_PATTERN = r"^[!#-;=?-\[\]_a-z~]+$"
"""Printable ASCII that needs no quoting in any rendering: a line feed in it would add lines to everybody's listings."""
PATH_PATTERN = r"^/[!#-;=?-\[\]_a-z~]*$"
NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"

CategoryId = Annotated[str, Field(min_length=1, max_length=1024, pattern=URI_PATTERN)]
"""Scheme and term of a category."""

CategoryScheme = Annotated[
    str, Field(min_length=1, max_length=768, pattern=URI_PATTERN, description="A URI that ends in `#`.")
]
CategoryTerm = Annotated[
    str, Field(min_length=1, max_length=255, pattern=NAME_PATTERN, description="Its name within the scheme.")
]
Title = Annotated[str, Field(max_length=1024, description="Its name for people.")]
EntityPath = Annotated[str, Field(min_length=2, max_length=512, pattern=PATH_PATTERN)]
MOST_MEMBERS = 10_000


class OcciAttribute(ApiModel):
    """An attribute of a mixin, or a parameter of an action."""

    name: Annotated[str, Field(min_length=1, max_length=255, pattern=NAME_PATTERN, description="Its name.")]
    type: Annotated[
        Literal["string", "number", "boolean", "array", "object"], Field(description="Its type in JSON.")
    ] = "string"
    mutable: Annotated[bool, Field(description="Clients may set it at any time.")] = True
    required: Annotated[bool, Field(description="It must be given.")] = False
    default: Annotated[Any, Field(json_schema_extra=FREE_FORM, description="Used when none is given.")] = None
    pattern: Annotated[str, Field(max_length=1024, description="Regular expression that a string must match.")] = ""
    description: Annotated[str, Field(max_length=1024, description="What it is, for people.")] = ""


class OcciAction(ApiModel):
    """An action that a mixin brings."""

    scheme: CategoryScheme
    term: CategoryTerm
    title: Title = ""
    attributes: Annotated[
        list[OcciAttribute], Field(max_length=64, json_schema_extra=map_by("name"), description="Its parameters.")
    ] = []


class OcciMixinSpec(ApiModel):
    """A mixin, and the entities that have it."""

    scheme: Annotated[CategoryScheme, Field(json_schema_extra=IMMUTABLE)]
    term: Annotated[CategoryTerm, Field(json_schema_extra=IMMUTABLE)]
    title: Title = ""
    location: Annotated[
        str,
        Field(
            min_length=3,
            max_length=512,
            pattern=PATH_PATTERN.replace("*$", "+/$"),
            description="The path of its members' listing.",
        ),
    ]
    depends: Annotated[
        list[CategoryId],
        Field(max_length=32, json_schema_extra=ATOMIC, description="The mixins that it depends on, by id."),
    ] = []
    applies: Annotated[
        list[CategoryId],
        Field(max_length=32, json_schema_extra=ATOMIC, description="The kinds that it is for, by id; empty: for all."),
    ] = []
    attributes: Annotated[
        list[OcciAttribute],
        Field(max_length=128, json_schema_extra=map_by("name"), description="The attributes that it brings."),
    ] = []
    actions: Annotated[
        list[OcciAction],
        Field(max_length=64, json_schema_extra=map_by("scheme", "term"), description="The actions that it brings."),
    ] = []
    members: Annotated[
        list[EntityPath],
        Field(max_length=MOST_MEMBERS, json_schema_extra=SET, description="The paths of the entities that have it."),
    ] = []


class OcciMixin(ApiModel):
    """An OcciMixin is a category that a client of the OCCI frontends has defined, with its members."""

    metadata: Metadata
    spec: OcciMixinSpec


class OcciLinkSpec(ApiModel):
    """A link from an entity to something else."""

    kind: Annotated[CategoryId, Field(description="The id of its kind.", json_schema_extra=IMMUTABLE)]
    source: Annotated[EntityPath, Field(description="The path of the entity where it starts.")]
    target: Annotated[str, Field(min_length=1, max_length=2048, pattern=URI_PATTERN, description="A path or any URI.")]
    target_kind: Annotated[
        list[CategoryId],
        Field(max_length=32, json_schema_extra=ATOMIC, description="The ids of the target's kind and mixins."),
    ] = []
    title: Title = ""
    attributes: Annotated[Values, Field(description="Its attributes, by name.")] = {}


class OcciLink(ApiModel):
    """An OcciLink is a link that a client of the OCCI frontends has made."""

    metadata: Metadata
    spec: OcciLinkSpec
