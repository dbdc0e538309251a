"""The connector that is a class: found, compared with the manifest, and called."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import sys
from pathlib import Path
from typing import Any, Callable, Mapping, Optional

from simyard_adapter.backend import Host, in_thread
from simyard_adapter.connector import Connector
from simyard_adapter.context import Context
from simyard_adapter.declarations import Interface, Json
from simyard_adapter.errors import StartError


class PythonBackend:
    """A connector that is a class."""

    def __init__(self, connector_class: type[Connector]) -> None:
        self._connector = connector_class()
        self.attributes = self._connector.attribute_store

    async def start(self, host: Host) -> None:
        """See :class:`Backend`."""
        connector = self._connector
        connector.directory = host.directory
        connector.log = host.log
        connector.running = host.running
        self.attributes.update(host.attributes)
        await _call(connector.start)

    async def stop(self) -> None:
        """See :class:`Backend`."""
        await _call(self._connector.stop)

    async def invoke(self, context: Context, parameters: Mapping[str, Json]) -> Mapping[str, Json]:
        """See :class:`Backend`."""
        method = getattr(self._connector, context.action)
        if not inspect.iscoroutinefunction(method):
            return await in_thread(lambda: method(context, **parameters)) or {}
        task = asyncio.ensure_future(method(context, **parameters))
        loop = asyncio.get_running_loop()
        try:
            with context.stopping(lambda: loop.call_soon_threadsafe(task.cancel)):
                await asyncio.wait({task})
        finally:
            task.cancel()
        if task.cancelled():
            context.check_cancelled()
            raise RuntimeError("the action's task was cancelled")
        return task.result() or {}

    async def refresh(self) -> None:
        """Nothing to do: the connector sets its attributes itself."""

    async def set_attribute(self, name: str, value: Json) -> None:
        """See :class:`Backend`."""
        await _call(self._connector.on_set, name, value)
        self.attributes.set(name, value)


async def _call(hook: Callable[..., Any], *args: Any) -> None:
    if inspect.iscoroutinefunction(hook):
        await hook(*args)
    else:
        await in_thread(lambda: hook(*args))


def load_class(reference: str, directory: Optional[Path] = None) -> type[Connector]:
    """Import ``module:Class``; modules in ``directory`` come first.

    Raises:
        StartError: there is no such class, its module fails, or it is not a :class:`Connector`.
    """
    module_name, _, class_name = reference.partition(":")
    if not module_name or not class_name:
        raise StartError(f"the connector's class must read module:Class, not {reference!r}")
    source = directory / (module_name.replace(".", "/") + ".py") if directory else None
    if directory:
        sys.path.insert(0, str(directory))
        importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the vendor's module: whatever it raises is why the adapter cannot start
        raise StartError(f"the connector's module {module_name} fails: {type(error).__name__}: {error}") from error
    finally:
        if directory:
            sys.path.remove(str(directory))
    if source and source.is_file() and not _same_source(source, getattr(module, "__file__", None)):
        raise StartError(f"this process has another module named {module_name} already")
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, Connector)):
        raise StartError(f"{reference} is not a simyard_adapter.Connector")
    return found


def _same_source(source: Path, loaded: Optional[str]) -> bool:
    digests = [hashlib.sha256(Path(path).read_bytes()).digest() for path in (source, loaded) if path]
    return len(digests) == 2 and digests[0] == digests[1]


def differences(manifest: Interface, connector: Interface) -> list[str]:
    """What differs between the interface that clients see and the one that the class declares, descriptions apart."""
    found = []
    for kind in ("attributes", "actions"):
        seen = {item.name: item for item in getattr(manifest, kind)}
        declared = {item.name: item for item in getattr(connector, kind)}
        for name in sorted(seen.keys() | declared.keys()):
            label = f"{kind[:-1]} {name}"
            if name not in declared:
                found.append(f"{label} is not declared by the class")
            elif name not in seen:
                found.append(f"{label} is missing in the manifest")
            elif _plain(seen[name].to_json()) != _plain(declared[name].to_json()):
                found.append(
                    f"{label} is {seen[name].to_json()} in the manifest, {declared[name].to_json()} in the class"
                )
    return found


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items() if key != "description"}
    return [_plain(item) for item in data] if isinstance(data, list) else data
