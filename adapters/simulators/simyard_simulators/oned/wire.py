# SPDX-License-Identifier: Apache-2.0
"""Reads and writes XML-RPC as xmlrpc-c does, oned's library: strict about types, with faults for all errors."""

from __future__ import annotations

import base64
import binascii
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

TYPE_ERROR = -501
PARSE_ERROR = -503
NO_SUCH_METHOD = -506
REFUSED = -507


class FaultError(Exception):
    """A call that is answered with an XML-RPC fault, with a code of xmlrpc-c."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Escaped:
    """The parts of a string that is already escaped, so that the answer about a pool can reuse cached parts."""

    pieces: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Long:
    """An integer that is sent as ``i8``."""

    value: int


Parameter = str | int | bool | float | bytes | list["Parameter"] | dict[str, "Parameter"]
Answer = str | int | bool | Escaped | Long | Sequence["Answer"] | dict[str, "Answer"]


def parse_call(body: bytes) -> tuple[str, list[Parameter]]:
    """Return the method and the parameters of a call.

    Raises:
        FaultError: The body is not XML, or not XML-RPC.
    """
    try:
        root = ET.fromstring(body)  # noqa: S314 (a simulator for tests)
    except (ET.ParseError, ValueError) as error:
        raise FaultError(PARSE_ERROR, f"Call is not valid XML.  {error}") from error
    if root.tag != "methodCall":
        raise FaultError(PARSE_ERROR, "XML-RPC call should be a <methodCall> element.  Instead, we have a "
                                 f"<{root.tag}> element.")  # fmt: skip
    name = root.findtext("methodName")
    if not name:
        raise FaultError(PARSE_ERROR, "Expected <methodCall> to have child <methodName>")
    values = []
    for parameter in root.iterfind("params/param"):
        value = parameter.find("value")
        if value is None:
            raise FaultError(PARSE_ERROR, "Expected <param> to have child <value>")
        values.append(_value(value))
    return name.strip(), values


def _value(node: ET.Element) -> Parameter:
    if len(node) == 0:
        return node.text or ""
    child = node[0]
    content = child.text or ""
    try:
        match child.tag:
            case "string":
                return content
            case "int" | "i4" | "i8":
                return int(content)
            case "boolean":
                if content.strip() not in ("0", "1"):
                    raise FaultError(
                        PARSE_ERROR, f"<boolean> XML element content must be either '0' or '1'.  Got '{content}'"
                    )
                return content.strip() == "1"
            case "double":
                return float(content)
            case "base64":
                return base64.b64decode(content)
            case "array":
                return [_value(value) for value in child.iterfind("data/value")]
            case "struct":
                return {member.findtext("name") or "": _member(member) for member in child.iterfind("member")}
    except (ValueError, binascii.Error) as error:
        raise FaultError(PARSE_ERROR, f"Invalid value in <{child.tag}>: {error}") from error
    raise FaultError(PARSE_ERROR, f"Unknown value type -- XML element is named <{child.tag}>")


def _member(member: ET.Element) -> Parameter:
    value = member.find("value")
    if value is None:
        raise FaultError(PARSE_ERROR, "<member> contains no <value> element")
    return _value(value)


class Arguments:
    """The parameters of a call, by position; a missing parameter or one of another type is a fault."""

    def __init__(self, values: Sequence[Parameter]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def string(self, position: int) -> str:
        """Return a string."""
        value = self._at(position)
        if isinstance(value, str):
            return value
        raise FaultError(TYPE_ERROR, "Parameter that is supposed to be string is not")

    def integer(self, position: int) -> int:
        """Return an integer; a boolean is not an integer."""
        value = self._at(position)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise FaultError(TYPE_ERROR, "Parameter that is supposed to be integer is not")

    def boolean(self, position: int) -> bool:
        """Return a boolean; an integer is not a boolean."""
        value = self._at(position)
        if isinstance(value, bool):
            return value
        raise FaultError(TYPE_ERROR, "Parameter that is supposed to be boolean is not")

    def array(self, position: int) -> list[Parameter]:
        """Return an array."""
        value = self._at(position)
        if isinstance(value, list):
            return value
        raise FaultError(TYPE_ERROR, "Parameter that is supposed to be array is not")

    def _at(self, position: int) -> Parameter:
        if position >= len(self._values):
            raise FaultError(TYPE_ERROR, "Not enough parameters")
        return self._values[position]


_HEAD = b'<?xml version="1.0" encoding="UTF-8"?>\r\n<methodResponse>\r\n'
_TAIL = b"</methodResponse>\r\n"


def response(answer: Answer) -> bytes:
    """Return the document of a successful call."""
    pieces = [_HEAD, b"<params>\r\n<param><value>"]
    _write(answer, pieces)
    pieces += [b"</value></param>\r\n</params>\r\n", _TAIL]
    return b"".join(pieces)


def fault_response(fault: FaultError) -> bytes:
    """Return the document of a fault."""
    pieces = [_HEAD, b"<fault>\r\n<value>"]
    _write(fault_value(fault), pieces)
    pieces += [b"</value>\r\n</fault>\r\n", _TAIL]
    return b"".join(pieces)


def fault_value(fault: FaultError) -> Answer:
    """Return the struct of a fault, which takes the place of a call's answer in a multicall."""
    return {"faultCode": fault.code, "faultString": fault.message}


def _write(answer: Answer, pieces: list[bytes]) -> None:
    match answer:
        case bool():
            pieces.append(b"<boolean>1</boolean>" if answer else b"<boolean>0</boolean>")
        case int():
            pieces.append(b"<i4>%d</i4>" % answer)
        case str():
            pieces.append(b"<string>" + escape(answer).encode() + b"</string>")
        case Escaped():
            pieces += [b"<string>", *answer.pieces, b"</string>"]
        case Long():
            pieces.append(b"<i8>%d</i8>" % answer.value)
        case dict():
            pieces.append(b"<struct>")
            for name, value in answer.items():
                pieces.append(b"<member><name>" + escape(name).encode() + b"</name><value>")
                _write(value, pieces)
                pieces.append(b"</value></member>")
            pieces.append(b"</struct>")
        case _:
            pieces.append(b"<array><data>")
            for value in answer:
                pieces.append(b"<value>")
                _write(value, pieces)
                pieces.append(b"</value>")
            pieces.append(b"</data></array>")
