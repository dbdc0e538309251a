# SPDX-License-Identifier: Apache-2.0
"""The JSON schema of OCCI 1.2 (GFD.226), written anew: what it requires, and that it permits nothing else.

The strictest reading of its two copies that clients use: of an attribute's ``pattern``, the OGF says that it is a JSON
schema and rOCCI-core that it is a string, so whatever has one is refused here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fastjsonschema

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
IDS: Schema = {"type": "array", "minItems": 1, "uniqueItems": True, "items": TEXT}
VALUE: Schema = {"type": ["number", "boolean", "string", "object", "array"]}


def _object(required: str, /, **properties: Schema) -> Schema:
    return {"type": "object", "required": required.split(), "additionalProperties": False, "properties": properties}


def _array(of: str) -> Schema:
    return {"type": "array", "minItems": 1, "items": {"$ref": f"#/definitions/{of}"}}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/definitions/{name}"}


_ENTITY = {"kind": TEXT, "id": TEXT, "title": TEXT, "mixins": IDS, "actions": IDS, "attributes": _ref("attributes")}
_CATEGORY = {"term": TEXT, "scheme": TEXT, "title": TEXT, "attributes": _ref("descriptions")}
_DEFINITIONS: Schema = {
    "attributes": {"type": "object", "additionalProperties": VALUE},
    "descriptions": {"type": "object", "additionalProperties": _ref("description")},
    "description": _object(
        "mutable required type",
        mutable={"type": "boolean"},
        required={"type": "boolean"},
        type=TEXT,
        default=VALUE,
        description=TEXT,
    ),
    "end": _object("location", location=TEXT, kind=TEXT),
    "resource": _object("kind id attributes", **_ENTITY, summary=TEXT, links=_array("link")),
    "link": _object("kind id source target attributes", **_ENTITY, source=_ref("end"), target=_ref("end")),
    "kind": _object("term scheme location", **_CATEGORY, parent=TEXT, location=TEXT, actions=IDS),
    "mixin": _object("term scheme location", **_CATEGORY, location=TEXT, depends=IDS, applies=IDS, actions=IDS),
    "action": _object("term scheme", **_CATEGORY),
    "entity_collection": _object("", resources=_array("resource"), links=_array("link")),
    "model": _object("", kinds=_array("kind"), mixins=_array("mixin"), actions=_array("action")),
}


def validator(name: str) -> Callable[[object], object]:
    """Return a check that raises ``JsonSchemaValueException`` for a document that is no ``resource``, ``link``, ..."""
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", **_ref(name), "definitions": _DEFINITIONS}
    compiled: Callable[[object], object] = fastjsonschema.compile(schema)
    return compiled
