# SPDX-License-Identifier: Apache-2.0
"""The backend of connectors that are Python classes: it imports, compares and calls the class."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Iterable, Mapping, Optional, Tuple

from simyard_adapter.backend import BackendEnvironment, run_in_thread
from simyard_adapter.connector import Connector
from simyard_adapter.context import Context
from simyard_adapter.declarations import Interface, Json
from simyard_adapter.errors import StartError


class PythonBackend:
    """A connector that is a Python class (implements :class:`simyard_adapter.backend.Backend`)."""

    def __init__(self, connector_class: type[Connector]) -> None:
        self._connector = connector_class()
        self.attributes = self._connector.attribute_store

    async def start(self, environment: BackendEnvironment) -> None:
        """Set the connector's members and the user's attributes, then call its ``start``."""
        connector = self._connector
        connector.directory = environment.directory
        connector.log = environment.log
        connector.running = environment.running
        self.attributes.update(environment.attributes)
        await _call(connector.start)

    async def stop(self) -> None:
        """Call the connector's ``stop``."""
        await _call(self._connector.stop)

    async def invoke(self, context: Context, parameters: Mapping[str, Json]) -> Mapping[str, Json]:
        """Call the method of the action: plain methods in a thread, ``async`` methods in the event loop."""
        method = getattr(self._connector, context.action)
        if not inspect.iscoroutinefunction(method):
            return await run_in_thread(lambda: method(context, **parameters)) or {}
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        try:
            with context.stopping(lambda: loop.call_soon_threadsafe(task.cancel)):
                return await method(context, **parameters) or {}
        except asyncio.CancelledError:
            if context.stopped is not None:
                raise
            raise RuntimeError("the task of the action was cancelled") from None

    async def refresh(self) -> None:
        """Do nothing: the connector sets its attributes itself."""

    async def set_attribute(self, name: str, value: Json) -> None:
        """Call the connector's ``on_set``, then store the value."""
        await _call(self._connector.on_set, name, value)
        self.attributes.set(name, value)


_NOTHING = (Connector.start, Connector.stop, Connector.on_set)


async def _call(hook: Callable[..., Any], *args: Any) -> None:
    if getattr(hook, "__func__", None) in _NOTHING:
        return  # The base class does nothing, so no thread is needed.
    if inspect.iscoroutinefunction(hook):
        await hook(*args)
    else:
        await run_in_thread(lambda: hook(*args))


def load_class(reference: str, directory: Optional[Path] = None, files: Iterable[str] = ()) -> type[Connector]:
    """Import ``module:Class``; modules in ``directory`` take precedence.

    Adapters in one process that have the same ``files`` (paths below ``directory``) share the modules, even after the
    first adapter's directory is deleted. Other files are imported anew; running adapters keep their modules.

    Raises:
        StartError: The class does not exist, its module fails, or it is not a :class:`Connector`.
    """
    module_name, _, class_name = reference.partition(":")
    if not module_name or not class_name:
        raise StartError(f"connector.python.class: must have the form module:Class, not {reference!r}")
    try:
        module = _import_from(directory, module_name, files) if directory else importlib.import_module(module_name)
    except Exception as error:  # Any exception of the vendor's module is the reason why the adapter cannot start.
        raise StartError(
            f"the import of the connector's module {module_name} failed: {type(error).__name__}: {error}"
        ) from error
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, Connector)):
        raise StartError(f"connector.python.class: {reference} is not a subclass of simyard_adapter.Connector")
    return found


_imported: dict[Tuple[str, bytes], dict[str, ModuleType]] = {}
"""The modules among a connector's files, by the name of its main module and the digest of its files."""


def _import_from(directory: Path, module_name: str, files: Iterable[str]) -> ModuleType:
    directory = directory.resolve()
    source = directory / (module_name.replace(".", "/") + ".py")
    digest = hashlib.sha256()
    for path in sorted({source, *(directory / name for name in files)}):
        if path.is_file():
            digest.update(f"{path.relative_to(directory)}\0".encode() + path.read_bytes())
    key = module_name, digest.digest()
    if key not in _imported:
        for modules in _imported.values():  # Another service may have modules with the same names.
            for name in modules:
                sys.modules.pop(name, None)
        sys.path.insert(0, str(directory))
        importlib.invalidate_caches()
        try:
            module = importlib.import_module(module_name)
        finally:
            sys.path.remove(str(directory))
        if not _is_below(directory, module):
            if source.is_file():
                raise ImportError(
                    f"this process already has another module named {module_name}: rename the connector's module"
                )
            return module
        _imported[key] = {name: item for name, item in list(sys.modules.items()) if _is_below(directory, item)}
    sys.modules.update(_imported[key])
    return sys.modules[module_name]


def _is_below(directory: Path, module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and directory in Path(file).resolve().parents


def find_differences(manifest: Interface, connector: Interface) -> list[str]:
    """Return the find_differences between the manifest's interface and the class's, ignoring descriptions."""
    found = []
    for kind in ("attributes", "actions"):
        seen = {item.name: item for item in getattr(manifest, kind)}
        declared = {item.name: item for item in getattr(connector, kind)}
        for name in sorted(seen.keys() | declared.keys()):
            label = f"{kind[:-1]} {name}"
            if name not in declared:
                found.append(f"{label} is missing in the class")
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
