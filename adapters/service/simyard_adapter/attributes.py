# SPDX-License-Identifier: Apache-2.0
"""The values of a service's attributes: threads set them, each value is checked, and the changes are collected."""

from __future__ import annotations

import json
import threading
from typing import Callable, Iterable, Mapping, Optional

from simyard_adapter.declarations import Interface, InvalidValueError, Json, check_values
from simyard_adapter.limits import MAX_ATTRIBUTES_BYTES, MAX_VALUE_BYTES


class AttributeStore:
    """The attribute values of one worker, by name; they start with the declared defaults. Thread-safe."""

    def __init__(self, interface: Interface) -> None:
        self._interface = interface
        self._lock = threading.Lock()
        self._values: dict[str, Json] = {
            item.name: item.default for item in interface.attributes if item.default is not None
        }
        self._changes: dict[str, Json] = {}
        self._listener: Optional[Callable[[], None]] = None

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after each change, in the thread that made it."""
        self._listener = listener

    def set(self, name: str, value: Json) -> None:
        """Set one value.

        Raises:
            InvalidValueError: The attribute is not declared, or the value does not fit its declaration.
        """
        path = f"attributes.{name}"
        declared = self._interface.find_attribute(name)
        if declared is None:
            raise InvalidValueError(path, "is not an attribute that the service declares")
        checked = declared.check(value, path)
        size = len(json.dumps(checked))
        if size > MAX_VALUE_BYTES:
            raise InvalidValueError(path, f"has {size} bytes as JSON, at most {MAX_VALUE_BYTES} are accepted")
        with self._lock:
            if name in self._values and _identical(self._values[name], checked):
                return
            total = len(json.dumps({**self._values, name: checked}))
            if total > MAX_ATTRIBUTES_BYTES:
                problem = (
                    f"makes all attributes together {total} bytes long, at most {MAX_ATTRIBUTES_BYTES} are accepted"
                )
                raise InvalidValueError(path, problem)
            self._values[name] = checked
            self._changes[name] = checked
            listener = self._listener
        if listener is not None:
            listener()

    def update(self, values: Mapping[str, Json]) -> None:
        """Set several values, or none of them if one is invalid.

        Raises:
            InvalidValuesError: One error for each value that is not declared or does not fit.
        """
        for name, value in check_values(values, self._interface.attributes, "attributes", partial=True).items():
            self.set(name, value)

    def get(self, name: str) -> Json:
        """Return the value of an attribute, or None if it was never set."""
        with self._lock:
            return self._values.get(name)

    def get_values(self, names: Optional[Iterable[str]] = None) -> dict[str, Json]:
        """Return all values that are set, or only those in ``names``."""
        with self._lock:
            return {name: self._values[name] for name in (names or self._values) if name in self._values}

    def collect_changes(self) -> dict[str, Json]:
        """Return the values that changed since the last call."""
        with self._lock:
            changes, self._changes = self._changes, {}
            return changes


def _identical(left: Json, right: Json) -> bool:
    return left == right and type(left) is type(right)
