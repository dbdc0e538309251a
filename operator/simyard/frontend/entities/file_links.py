# SPDX-License-Identifier: Apache-2.0
"""Links to files in the file store, as OCCI shows and reads them. Pure.

OCCI has no type for a file, so the frontend shows a file as a path: ``/files/sha256:...``. If a client sends GET for
this path, with its token, the response redirects the client to the content. As a parameter, a client sends such a path,
a URL, or the JSON object of the Kubernetes API.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

import orjson

from simyard.occi.model import Value
from simyard_adapter.declarations import Value as Declared
from simyard_adapter.digests import is_address

FILES_LOCATION = "/files/"


def parse_file_path(path: str) -> str:
    """Return the address in the path of a file; "" if the path is not that of a file."""
    address = path.removeprefix(FILES_LOCATION)
    return address if address != path and is_address(address) else ""


def parse_files(values: Mapping[str, Value], declared: Iterable[Declared]) -> dict[str, Value]:
    """Return the values with a reference in place of each path or URL of a file."""
    files = {item.name for item in declared if item.holds_files}
    return {name: _parse_file(value) if name in files else value for name, value in values.items()}


def _parse_file(value: Value) -> Value:
    if isinstance(value, list):
        return [item if item is None else _parse_file(item) for item in value]
    if not isinstance(value, str):
        return value
    if address := parse_file_path(value):
        return {"file": address}
    if value.startswith("{"):  # the text renderings have no objects
        with contextlib.suppress(orjson.JSONDecodeError):
            parsed: Value = orjson.loads(value)
            return parsed
    return {"url": value} if "://" in value else value


def render_files(values: Mapping[str, Value], declared: Iterable[Declared]) -> dict[str, Value]:
    """Return the values with a path in place of each file, without the values that are None."""
    files = {item.name for item in declared if item.holds_files}
    return {name: render_file(value) if name in files else value for name, value in values.items() if value is not None}


def render_file(value: Value) -> Value:
    """Return the path of a file, or the paths of an array of files. Return a value that is no file unchanged."""
    if isinstance(value, list):
        return [item if item is None else render_file(item) for item in value]
    address = value.get("file") if isinstance(value, dict) else None
    return FILES_LOCATION + address if isinstance(address, str) and is_address(address) else value
