# SPDX-License-Identifier: Apache-2.0
"""Encodes and decodes oned's XML-RPC: calls, ``system.multicall``, and answers ``[ok, value or message, code]``.

The standard library encodes the calls, which are small. lxml decodes the answers, which can contain thousands of
machines as one string; it needs a third of the CPU time of ``xmlrpc.client``.
"""

from __future__ import annotations

import base64
import xmlrpc.client
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lxml import etree
from pyone import (
    OneActionException,
    OneApiException,
    OneAuthenticationException,
    OneAuthorizationException,
    OneException,
    OneInternalException,
    OneNoExistsException,
)

from simyard_sites.opennebula.records import make_parser

Parameter = str | int | bool
Decoded = str | int | bool | float | bytes | None | list["Decoded"] | dict[str, "Decoded"]


class OneAllocateException(OneException):  # type: ignore[misc]
    """Code 0x4000: an object could not be created; pyone has no class for it."""


class OneLockedException(OneException):  # type: ignore[misc]
    """Code 0x8000: another user has locked the object."""


class MalformedAnswerError(Exception):
    """An answer that is not valid XML-RPC."""


_EXCEPTIONS: Mapping[int, type[Exception]] = {
    0x0100: OneAuthenticationException,
    0x0200: OneAuthorizationException,
    0x0400: OneNoExistsException,
    0x0800: OneActionException,
    0x1000: OneApiException,
    0x2000: OneInternalException,
    0x4000: OneAllocateException,
    0x8000: OneLockedException,
}
"""The exception for each code of an answer (OpenNebula, "XML-RPC API", and ``Request::ErrorCode``)."""


@dataclass(frozen=True, slots=True)
class RpcCall:
    """A method and its parameters, without the session, which the client inserts as the first parameter."""

    method: str
    parameters: tuple[Parameter, ...] = field(default=(), repr=False)


Answer = str | int | bool | Exception
"""The value of a call, or pyone's exception that explains the failure."""


def encode(call: RpcCall, session: str) -> bytes:
    """Return the body of a request for one call."""
    return _dumps((session, *call.parameters), call.method)


def encode_all(calls: Sequence[RpcCall], session: str) -> bytes:
    """Return the body of a request for several calls, which oned executes one after the other."""
    entries = [{"methodName": call.method, "params": [session, *call.parameters]} for call in calls]
    return _dumps((entries,), "system.multicall")


def decode(body: bytes) -> Answer:
    """Return the answer to :func:`encode`.

    Raises:
        MalformedAnswerError: The body is not a valid answer.
    """
    value = _response(body)
    return value if isinstance(value, Exception) else _answer(value)


def decode_all(body: bytes, count: int) -> list[Answer]:
    """Return the answers to :func:`encode_all`, in order.

    Raises:
        MalformedAnswerError: The body is not valid, or has another number of answers.
    """
    value = _response(body)
    if isinstance(value, Exception):
        return [value] * count
    if not isinstance(value, list) or len(value) != count:
        raise MalformedAnswerError("system.multicall returned another number of answers than calls")
    return [_multicall_answer(each) for each in value]


def _dumps(parameters: tuple[object, ...], method: str) -> bytes:
    return xmlrpc.client.dumps(parameters, method, encoding="utf-8").encode()  # type: ignore[arg-type]


def _response(body: bytes) -> Decoded | OneException:
    try:
        root = etree.fromstring(body, make_parser())
    except (etree.XMLSyntaxError, ValueError) as error:
        raise MalformedAnswerError(f"the answer is not XML: {error}") from error
    if root.tag != "methodResponse":
        raise MalformedAnswerError(f"the answer starts with <{root.tag}>")
    fault = root.find("fault/value")
    if fault is not None:
        return _fault(_value(fault))
    found = root.find("params/param/value")
    if found is None:
        raise MalformedAnswerError("the answer has no value")
    return _value(found)


def _fault(value: Decoded) -> OneException:
    said = value if isinstance(value, dict) else {}
    return OneException(f"fault {said.get('faultCode')!r}: {said.get('faultString')!r}")


def _multicall_answer(value: Decoded) -> Answer:
    if isinstance(value, dict):
        fault: Exception = _fault(value)
        return fault
    if not isinstance(value, list) or len(value) != 1:
        raise MalformedAnswerError("an answer in system.multicall is not an array of one value")
    return _answer(value[0])


def _answer(value: Decoded) -> Answer:
    if not isinstance(value, list) or len(value) < 3 or not isinstance(value[0], bool):
        raise MalformedAnswerError("the value is not an array of a success flag, a value and a code")
    ok, said, code = value[:3]
    if ok and isinstance(said, str | int):
        return said
    error: Exception = (_EXCEPTIONS.get(code, OneException) if isinstance(code, int) else OneException)(str(said))
    return error


def _text(element: etree._Element) -> str:
    return element.text or ""


def _members(struct: etree._Element) -> dict[str, Decoded]:
    found = ((member.findtext("name", ""), member.find("value")) for member in struct.iterfind("member"))
    return {name: _value(value) for name, value in found if value is not None}


def _items(array: etree._Element) -> list[Decoded]:
    return [_value(value) for value in array.iterfind("data/value")]


_READERS: Mapping[str, Callable[[etree._Element], Decoded]] = {
    "string": _text,
    "int": lambda element: int(_text(element)),
    "i4": lambda element: int(_text(element)),
    "i8": lambda element: int(_text(element)),
    "boolean": lambda element: _text(element).strip() == "1",
    "double": lambda element: float(_text(element)),
    "base64": lambda element: base64.b64decode(_text(element)),
    "dateTime.iso8601": _text,
    "nil": lambda _: None,
    "array": _items,
    "struct": _members,
}


def _value(value: etree._Element) -> Decoded:
    if len(value) == 0:
        return _text(value)
    reader = _READERS.get(value[0].tag)
    if reader is None:
        raise MalformedAnswerError(f"<{value[0].tag}> is not a type of XML-RPC")
    try:
        return reader(value[0])
    except ValueError as error:
        raise MalformedAnswerError(f"<{value[0].tag}>: {error}") from error
