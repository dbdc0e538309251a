# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI documents of the aggregated API: parameters and responses of its paths. The module does no I/O."""

from __future__ import annotations

from simyard.api.base import Json
from simyard.api.names import (
    ACTION_RESULT,
    ATTRIBUTE_VALUES,
    STUDIES,
    STUDY_RESULTS,
    SUBRESOURCES_GROUP,
    VERSION,
    WORKERS,
)
from simyard.apiserver.routes import VERSION_PATH, Document
from simyard.serving.calls import TARGETS
from simyard_sites.kubernetes.resource import Resource

_INFO = {"title": "Simyard", "version": VERSION}
_PREFIX = ".".join([*reversed(SUBRESOURCES_GROUP.split(".")), VERSION])
_ANY: Json = {"description": "A value that the service's interface declares."}
_STRING: Json = {"type": "string"}
_FREE: Json = {"type": "object", "additionalProperties": True}
_PARAMETERS: Json = {
    **_FREE,
    "description": "Parameters by name. A file is an object with `file`, its address, or, where the platform allows it,"
    " with `url`.",
}


def make_version_2() -> Json:
    """Return an OpenAPI 2 document without paths. It needs none, because kube-apiserver and kubectl read version 3."""
    return {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}


def make_version_3_root(digest: str) -> Json:
    """Return the index of the OpenAPI 3 documents; ``digest`` is the digest of the only document."""
    url = f"{Document.OPENAPI_V3_GROUP}?hash={digest}"
    return {"paths": {VERSION_PATH.removeprefix("/"): {"serverRelativeURL": url}}}


def make_version_3() -> Json:
    """Return the OpenAPI 3 document of the group's only version."""
    paths: Json = {}
    for resource in TARGETS.values():
        base = f"{VERSION_PATH}/namespaces/{{namespace}}/{resource.plural}/{{name}}"
        paths[base] = _path(
            resource, {"get": _operation("Return the interface of the object's service.", resource.kind)}
        )
        paths[f"{base}/actions/{{action}}"] = _path(
            resource,
            {
                method: _operation(
                    "Call an action, and wait at most 30 s or record the call.",
                    ACTION_RESULT,
                    body="ActionCall",
                    query=[_query("wait", "boolean", "false: return 202 and the ServiceAction that records the call.")],
                )
                for method in ("post", "put")
            },
            "action",
        )
        fresh = [_query("fresh", "boolean", "true: ask the workers now, and wait at most 1 s.")]
        read = _operation("Return the newest known values.", ATTRIBUTE_VALUES, query=fresh)
        paths[f"{base}/attributes"] = _path(resource, {"get": read})
        one: Json = {"get": read}
        if resource is WORKERS:
            one["put"] = _operation("Set a mutable attribute.", ATTRIBUTE_VALUES, body="AttributeValue")
            paths[f"{base}/log"] = _path(resource, {"get": _log()})
        paths[f"{base}/attributes/{{attribute}}"] = _path(resource, one, "attribute")
    paths[f"{VERSION_PATH}/namespaces/{{namespace}}/{STUDIES.plural}/{{name}}/results"] = _path(
        STUDIES,
        {
            "get": _operation(
                "Return the stored rows of the study: for each chunk, a URL of compressed CSV.",
                STUDY_RESULTS,
                query=[
                    _query("limit", "integer", "The largest number of chunks in the answer."),
                    _query("continue", "string", "The value of metadata.continue in the former answer."),
                ],
            )
        },
    )
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": paths,
        "components": {"schemas": {f"{_PREFIX}.{name}": schema for name, schema in _schemas().items()}},
    }


def _path(resource: Resource, operations: Json, *names: str) -> Json:
    for method, operation in operations.items():
        operation["tags"] = [f"{SUBRESOURCES_GROUP}_{VERSION}"]
        operation["x-kubernetes-action"] = method
    names = ("namespace", "name", *names)
    return {
        **operations,
        "parameters": [{"name": name, "in": "path", "required": True, "schema": _STRING} for name in names],
    }


def _operation(description: str, kind: str, *, body: str = "", query: list[Json] | None = None) -> Json:
    answer = {"description": "OK", "content": _content(kind)}
    operation: Json = {"description": description, "responses": {"200": answer}}
    if query:
        operation["parameters"] = query
    if body:
        operation["requestBody"] = {"content": _content(body)}
    return operation


def _log() -> Json:
    return {
        "description": "Return the log of the worker's adapter and its program.",
        "parameters": [
            _query("tailLines", "integer", "The number of lines to return, from the end."),
            _query("invocation", "string", "The id of an invocation; return only the lines of that one."),
            _query(
                "after", "integer", "Return all lines after this position; in the log of an action, a number of bytes."
            ),
            _query("follow", "boolean", "Send further lines as they come, until the action ends or for an hour."),
        ],
        "responses": {"200": {"description": "OK", "content": {"text/plain": {"schema": _STRING}}}},
    }


def _query(name: str, kind: str, description: str) -> Json:
    return {"name": name, "in": "query", "description": description, "schema": {"type": kind}}


def _content(schema: str) -> Json:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{_PREFIX}.{schema}"}}}


def _object(properties: Json, kind: str = "") -> Json:
    schema: Json = {"type": "object", "properties": properties}
    if kind:
        schema["properties"] = {"apiVersion": _STRING, "kind": _STRING, "metadata": _FREE, **properties}
        schema["x-kubernetes-group-version-kind"] = [{"group": SUBRESOURCES_GROUP, "version": VERSION, "kind": kind}]
    return schema


def _schemas() -> Json:
    value = _object(
        {
            "value": _ANY,
            "type": _STRING,
            "unit": _STRING,
            "observedTime": {"type": "string", "format": "date-time"},
            "ageMilliseconds": {"type": "integer"},
            "fresh": {"type": "boolean", "description": "The worker reported the value for this request."},
        }
    )
    values: Json = {"type": "object", "additionalProperties": value}
    ready: Json = {"type": "boolean"}
    item = _object({"metadata": _FREE, "ready": ready, "values": values})
    part = _object({"chunk": {"type": "integer"}, "bytes": {"type": "integer"}, "download": _FREE})
    return {
        "ActionCall": _object({"parameters": _PARAMETERS}),
        ACTION_RESULT: _object({"worker": _STRING, "seconds": {"type": "number"}, "result": _FREE}, ACTION_RESULT),
        "AttributeValue": _object({"value": _ANY}),
        ATTRIBUTE_VALUES: _object(
            {"ready": ready, "values": values, "items": {"type": "array", "items": item}}, ATTRIBUTE_VALUES
        ),
        STUDY_RESULTS: _object({"items": {"type": "array", "items": part}}, STUDY_RESULTS),
        **{resource.kind: _object({"interface": _FREE}, resource.kind) for resource in TARGETS.values()},
    }
