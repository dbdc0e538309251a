# SPDX-License-Identifier: Apache-2.0
"""The requests that read and set attributes of a worker."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, Mapping

from simyard_adapter.backend import Backend
from simyard_adapter.deadline import within
from simyard_adapter.declarations import Interface, InvalidValuesError, Json, check_values
from simyard_adapter.invocations import RefusedError
from simyard_adapter.running import to_wire_error
from simyard_adapter.wire import ErrorReason

REFRESH_SECONDS = 12.0


class AttributeRequests:
    """Answers the requests for the attributes of one backend."""

    def __init__(self, interface: Interface, backend: Backend) -> None:
        self._interface = interface
        self._backend = backend

    async def read(self, names: Any) -> Mapping[str, Any]:
        """Refresh the attributes and return the body of the reply; ``names`` is None or a list of declared names.

        Raises:
            RefusedError: ``names`` has another form, or a name is undeclared.
        """
        if names is not None:
            if not isinstance(names, list):
                raise RefusedError(ErrorReason.INVALID_REQUEST, "must be a list", "names")
            for name in names:
                self._is_mutable(name, f"names.{name}")
        with contextlib.suppress(asyncio.TimeoutError):
            await within(REFRESH_SECONDS, self._backend.refresh())
        return {"values": self._backend.attributes.get_values(names), "observedAt": time.time()}

    async def write(self, values: Any) -> Mapping[str, Any]:
        """Set attributes by name and return the body of the reply.

        Raises:
            RefusedError: A value does not match its declaration, an attribute is undeclared or read-only, or the
                connector failed to set it.
        """
        if not isinstance(values, dict):
            raise RefusedError(ErrorReason.INVALID_REQUEST, "must be an object", "values")
        for name in values:
            if not self._is_mutable(name, f"values.{name}"):
                problem = f"the attribute {name} is not declared as mutable, so it is read-only"
                raise RefusedError(ErrorReason.INVALID_PARAMETERS, problem, f"values.{name}")
        try:
            checked: dict[str, Json] = check_values(values, self._interface.attributes, "values", partial=True)
        except InvalidValuesError as error:
            raise RefusedError.of_values(error) from None
        for name, value in checked.items():
            try:
                await self._backend.set_attribute(name, value)
            except Exception as error:  # An exception of the connector's own hook becomes the reply.
                failure = to_wire_error(error)
                raise RefusedError(failure.reason, failure.message, f"values.{name}") from error
        return {"values": self._backend.attributes.get_values(checked), "observedAt": time.time()}

    def _is_mutable(self, name: Any, path: str) -> bool:
        declared = self._interface.find_attribute(str(name))
        if declared is None:
            raise RefusedError(ErrorReason.UNKNOWN_ATTRIBUTE, f"the service declares no attribute {name!r}", path)
        return declared.mutable
