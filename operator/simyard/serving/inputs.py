# SPDX-License-Identifier: Apache-2.0
"""Reads the body and the query of a request. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from simyard.serving.status import Cause, StatusError, StatusReason, Subject, make_invalid_error
from simyard_adapter.declarations import Json

_OBJECT_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
_FLAGS = {"": True, "true": True, "1": True, "false": False, "0": False}


def read_object(body: bytes, content_type: str, field: str) -> Mapping[str, Json]:
    """Return the JSON object in a body; ``{}`` for an empty body, which ``kubectl create --raw`` may send.

    The object may have ``field`` and the fields of every Kubernetes object. Without a Content-Type, the body is JSON,
    because ``kubectl --raw`` sends no Content-Type.

    Raises:
        StatusError: the body is not such an object. An unknown field is an error too, because it may be misspelt.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in ("", "application/json"):
        raise StatusError(StatusReason.UNSUPPORTED_MEDIA_TYPE, f"the body is {media_type}: send application/json")
    if not body.strip():
        return {}
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise StatusError(StatusReason.BAD_REQUEST, f"the body is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise StatusError(StatusReason.BAD_REQUEST, "the body is not a JSON object")
    unknown = sorted(data.keys() - _OBJECT_FIELDS - {field})
    if unknown:
        raise StatusError(
            StatusReason.BAD_REQUEST, f'strict decoding error: unknown field "{unknown[0]}"; expected is: {field}'
        )
    return data


def read_parameters(body: bytes, content_type: str, subject: Subject) -> Mapping[str, Json]:
    """Return ``parameters`` from the body of an action's call.

    Raises:
        StatusError: the body is no such object, or ``parameters`` is not an object.
    """
    parameters = read_object(body, content_type, "parameters").get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise make_invalid_error(subject, [Cause("FieldValueTypeInvalid", "must be an object", "parameters")])
    return parameters


def read_value(body: bytes, content_type: str, subject: Subject) -> Json:
    """Return ``value`` from the body that sets an attribute.

    Raises:
        StatusError: the body is no such object, or has no ``value``.
    """
    value = read_object(body, content_type, "value").get("value")
    if value is None:
        raise make_invalid_error(subject, [Cause("FieldValueRequired", "is required", "value")])
    return value


def read_flag(query: Mapping[str, str], name: str, default: bool) -> bool:
    """Return a boolean in the query; ``?fresh`` alone is true.

    Raises:
        StatusError: the text is neither true nor false.
    """
    text = query.get(name)
    if text is None:
        return default
    if (value := _FLAGS.get(text.lower())) is None:
        raise StatusError(StatusReason.BAD_REQUEST, f"{name}={text}: send true or false")
    return value


def read_count(query: Mapping[str, str], name: str) -> int | None:
    """Return a whole number of at least 0 in the query; None if the query does not have it.

    Raises:
        StatusError: the text is no whole number, or is negative.
    """
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise StatusError(StatusReason.BAD_REQUEST, f"{name}={text}: send a whole number of at least 0")
    return int(text)


def read_positive(query: Mapping[str, str], name: str) -> int | None:
    """Return a positive whole number in the query; None if the query does not have it.

    Raises:
        StatusError: the text is no positive whole number.
    """
    if (count := read_count(query, name)) == 0:
        raise StatusError(StatusReason.BAD_REQUEST, f"{name}=0: send a positive whole number")
    return count
