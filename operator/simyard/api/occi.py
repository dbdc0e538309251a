# SPDX-License-Identifier: Apache-2.0
"""Kinds OcciMixin and OcciLink: objects that OCCI clients define, and that all frontends show."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from simyard.api.base import ATOMIC, FREE_FORM, IMMUTABLE, SET, ApiModel, Metadata, Values, map_by

URI_PATTERN = r"^[!#-;=?-\[\]_a-z~]+$"
"""Printable ASCII that needs no quotes in any rendering; a line feed would add lines to the listings of all clients."""
PATH_PATTERN = r"^/[!#-;=?-\[\]_a-z~]*$"
NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"

CategoryId = Annotated[str, Field(min_length=1, max_length=1024, pattern=URI_PATTERN)]
"""Id of a category: scheme and term."""

CategoryScheme = Annotated[
    str,
    Field(
        min_length=1, max_length=768, pattern=URI_PATTERN, description="Scheme of the category, a URI that ends in `#`."
    ),
]
CategoryTerm = Annotated[
    str,
    Field(min_length=1, max_length=255, pattern=NAME_PATTERN, description="Name of the category within the scheme."),
]
Title = Annotated[str, Field(max_length=1024, description="Name for people.")]
EntityPath = Annotated[str, Field(min_length=2, max_length=512, pattern=PATH_PATTERN)]
MAX_MIXIN_MEMBERS = 10_000


class OcciAttribute(ApiModel):
    """Attribute of a mixin, or parameter of an action."""

    name: Annotated[
        str, Field(min_length=1, max_length=255, pattern=NAME_PATTERN, description="Name of the attribute.")
    ]
    type: Annotated[
        Literal["string", "number", "boolean", "array", "object"], Field(description="Type of the values in JSON.")
    ] = "string"
    mutable: Annotated[bool, Field(description="Permits clients to set the attribute at any time.")] = True
    required: Annotated[bool, Field(description="Makes a value obligatory.")] = False
    default: Annotated[Any, Field(json_schema_extra=FREE_FORM, description="Value if the client gives no value.")] = (
        None
    )
    pattern: Annotated[str, Field(max_length=1024, description="Regular expression that a string must match.")] = ""
    description: Annotated[str, Field(max_length=1024, description="Meaning, for people.")] = ""


class OcciAction(ApiModel):
    """Action that a mixin defines."""

    scheme: CategoryScheme
    term: CategoryTerm
    title: Title = ""
    attributes: Annotated[
        list[OcciAttribute],
        Field(max_length=64, json_schema_extra=map_by("name"), description="Parameters of the action."),
    ] = []


class OcciMixinSpec(ApiModel):
    """Definition of a mixin, and the entities that have it."""

    scheme: Annotated[CategoryScheme, Field(json_schema_extra=IMMUTABLE)]
    term: Annotated[CategoryTerm, Field(json_schema_extra=IMMUTABLE)]
    title: Title = ""
    location: Annotated[
        str,
        Field(
            min_length=3,
            max_length=512,
            pattern=PATH_PATTERN.replace("*$", "+/$"),
            description="Path of the listing of the mixin's members.",
        ),
    ]
    depends: Annotated[
        list[CategoryId],
        Field(max_length=32, json_schema_extra=ATOMIC, description="Ids of the mixins on which this mixin depends."),
    ] = []
    applies: Annotated[
        list[CategoryId],
        Field(
            max_length=32,
            json_schema_extra=ATOMIC,
            description="Ids of the kinds to which the mixin applies; empty: all kinds.",
        ),
    ] = []
    attributes: Annotated[
        list[OcciAttribute],
        Field(max_length=128, json_schema_extra=map_by("name"), description="Attributes that the mixin defines."),
    ] = []
    actions: Annotated[
        list[OcciAction],
        Field(max_length=64, json_schema_extra=map_by("scheme", "term"), description="Actions that the mixin defines."),
    ] = []
    members: Annotated[
        list[EntityPath],
        Field(
            max_length=MAX_MIXIN_MEMBERS,
            json_schema_extra=SET,
            description="Paths of the entities that have the mixin.",
        ),
    ] = []


class OcciMixin(ApiModel):
    """An OcciMixin is a category that a client of the OCCI frontends has defined, with its members."""

    metadata: Metadata
    spec: OcciMixinSpec


class OcciLinkSpec(ApiModel):
    """Link from an entity to another entity or to any URI."""

    kind: Annotated[CategoryId, Field(description="Id of the link's kind.", json_schema_extra=IMMUTABLE)]
    source: Annotated[EntityPath, Field(description="Path of the entity where the link starts.")]
    target: Annotated[
        str, Field(min_length=1, max_length=2048, pattern=URI_PATTERN, description="Path of an entity, or any URI.")
    ]
    target_kind: Annotated[
        list[CategoryId],
        Field(max_length=32, json_schema_extra=ATOMIC, description="Ids of the target's kind and mixins."),
    ] = []
    title: Title = ""
    attributes: Annotated[Values, Field(description="Attributes of the link, by name.")] = {}


class OcciLink(ApiModel):
    """An OcciLink is a link that a client of the OCCI frontends has created."""

    metadata: Metadata
    spec: OcciLinkSpec
