# SPDX-License-Identifier: Apache-2.0
"""Generator of structural OpenAPI schemas for CustomResourceDefinitions from pydantic models."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from simyard.api.base import Json

INT32_MAX = 2**31 - 1
_VALIDATIONS = "x-kubernetes-validations"
_METADATA: dict[str, Json] = {
    "apiVersion": {"type": "string", "description": "Version of the schema that the object is written in."},
    "kind": {"type": "string", "description": "The kind of the object."},
    "metadata": {"type": "object"},
}


class _Generator(GenerateJsonSchema):
    """Generator of schemas in the dialect of Kubernetes: without titles and nulls, and with formats of integers."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def encode_default(self, dft: Any) -> Any:
        """Return a default in full: the API server checks it with CEL rules before it adds the defaults inside it."""
        if isinstance(dft, BaseModel):
            return dft.model_dump(mode="json", by_alias=True, exclude_none=True)
        return super().encode_default(dft)

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Return the schema without a default of None, because it only means that the field may be absent."""
        result = super().default_schema(schema)
        if "default" in result and result["default"] is None:
            del result["default"]
        return result

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        if not all(isinstance(value, str) for value in schema["expected"]):
            raise TypeError(f"no structural schema for the literals {schema['expected']}")
        return {"type": "string", "enum": schema["expected"]}

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        result = super().int_schema(schema)
        fits = result.get("maximum", INT32_MAX + 1) <= INT32_MAX
        return {**result, "format": "int32" if fits else "int64"}

    def union_schema(self, schema: core_schema.UnionSchema) -> JsonSchemaValue:
        """Return the schema of the only union that is supported: an integer or a string, each with its own bounds."""
        members = super().union_schema(schema)["anyOf"]
        if sorted(str(member.get("type")) for member in members) != ["integer", "string"]:
            raise TypeError(f"no structural schema for the union {members}")
        bounds = {key: value for member in members for key, value in member.items() if key not in ("type", "format")}
        return {**bounds, "x-kubernetes-int-or-string": True}

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """Return the schema without ``additionalProperties: true``.

        Another keyword already permits values of any type, and cannot stand beside this one.
        """
        return {key: value for key, value in super().dict_schema(schema).items() if value is not True}


def _inline(node: Json, definitions: dict[str, Json]) -> Json:
    """Return a schema in which each reference is replaced by its definition.

    Keywords next to a reference take precedence over the keywords of the definition. The CEL rules of both stay.
    """
    node = dict(node)
    reference = node.pop("$ref", None)
    if reference is not None:
        definition = definitions[reference.removeprefix("#/$defs/")]
        checks = definition.get(_VALIDATIONS, []) + node.get(_VALIDATIONS, [])
        node = {**definition, **node, **({_VALIDATIONS: checks} if checks else {})}
    node.pop("title", None)
    default = node.get("default")
    if default and isinstance(default, str | int):
        node["description"] = f"{node['description']} Default: {default}."
    if "properties" in node:
        node["properties"] = {name: _inline(field, definitions) for name, field in node["properties"].items()}
    if "items" in node:
        node["items"] = _inline(node["items"], definitions)
    return {key: node[key] for key in sorted(node)}


def _remove_defaults(node: Json) -> Json:
    result = {key: value for key, value in node.items() if key != "default"}
    if "properties" in result:
        result["properties"] = {name: _remove_defaults(field) for name, field in result["properties"].items()}
    if "items" in result:
        result["items"] = _remove_defaults(result["items"])
    return result


def build_schema(kind: type[BaseModel]) -> Json:
    """Return the schema of a kind: a model with the fields ``metadata``, ``spec`` and ``status``.

    A kind that only records the past has no spec, and a kind that contains only definitions has no status. The API
    server adds the defaults of the spec exactly as the model does. The schema has no defaults for the status, because a
    status contains only observed values.

    Raises:
        TypeError: The model has a type that a structural schema cannot express.
    """
    schema = kind.model_json_schema(by_alias=True, schema_generator=_Generator)
    root = _inline(schema, schema.get("$defs", {}))
    root.pop("$defs", None)
    properties = root["properties"]
    desired = {"spec": properties["spec"]} if "spec" in properties else {}
    observed = {"status": _remove_defaults(properties["status"])} if "status" in properties else {}
    root["properties"] = {**_METADATA, **desired, **observed}
    if desired:
        root["required"] = ["spec"]
    return root
