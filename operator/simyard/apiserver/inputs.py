"""What stands in a request's body and query, checked. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from simyard.apiserver.status import Cause, StatusError, StatusReason, Subject, invalid
from simyard_adapter.declarations import Json

_OBJECT_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
_FLAGS = {"": True, "true": True, "1": True, "false": False, "0": False}


def read_object(body: bytes, content_type: str, field: str) -> Mapping[str, Json]:
    """The JSON object of a body; an empty one is ``{}``, since ``kubectl create --raw`` may send nothing.

    ``field`` is the one that may stand in it, beside those that every Kubernetes object has. A missing Content-Type is
    JSON (``kubectl --raw`` sends none).

    Raises:
        StatusError: it is no such object; an unknown field is refused, as it may be a misspelt one.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in ("", "application/json"):
        raise StatusError(
            StatusReason.UNSUPPORTED_MEDIA_TYPE, f"the body is {media_type}: only application/json is accepted"
        )
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
    """``parameters`` of an action's body.

    Raises:
        StatusError: there is no such object in it.
    """
    parameters = read_object(body, content_type, "parameters").get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise invalid(subject, [Cause("FieldValueTypeInvalid", "must be an object", "parameters")])
    return parameters


def read_value(body: bytes, content_type: str, subject: Subject) -> Json:
    """``value`` of an attribute's body.

    Raises:
        StatusError: there is none in it.
    """
    value = read_object(body, content_type, "value").get("value")
    if value is None:
        raise invalid(subject, [Cause("FieldValueRequired", "is required", "value")])
    return value


def flag(query: Mapping[str, str], name: str, default: bool) -> bool:
    """A truth value in the query; ``?fresh`` alone is true.

    Raises:
        StatusError: it is something else.
    """
    text = query.get(name)
    if text is None:
        return default
    if (value := _FLAGS.get(text.lower())) is None:
        raise StatusError(StatusReason.BAD_REQUEST, f"{name}={text}: true or false is expected")
    return value


def positive(query: Mapping[str, str], name: str) -> int | None:
    """A positive number in the query, or None if there is none.

    Raises:
        StatusError: it is something else.
    """
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 10 and int(text) > 0):
        raise StatusError(StatusReason.BAD_REQUEST, f"{name}={text}: a positive whole number is expected")
    return int(text)
