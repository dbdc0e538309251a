"""From the bootstrap document to a backend."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Mapping

from simyard_adapter.backend import Backend
from simyard_adapter.bootstrap import Bootstrap
from simyard_adapter.command_backend import CommandBackend
from simyard_adapter.commands import CommandSet
from simyard_adapter.declarations import InvalidValuesError
from simyard_adapter.errors import StartError
from simyard_adapter.python_backend import PythonBackend, differences, load_class


def write_files(files: Mapping[str, str], directory: Path) -> None:
    """Write the manifest's files; one that begins with ``#!`` becomes executable.

    Raises:
        StartError: a path leads out of the directory.
    """
    for name, text in files.items():
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts or not relative.name or "\\" in name or ":" in name:
            raise StartError(f"files: the path {name!r} leads out of the connector's directory")
        path = directory / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            path.chmod(0o755)


def make_backend(bootstrap: Bootstrap, directory: Path) -> Backend:
    """The backend that the bootstrap document asks for; ``directory`` has the manifest's files.

    Raises:
        StartError: the connector cannot be made, or its interface is not the manifest's.
    """
    kinds = {kind: it for kind, it in bootstrap.connector.items() if isinstance(it, dict)}
    if len(kinds) != 1 or not kinds.keys() <= {"python", "commands"}:
        raise StartError("connector: exactly one of python and commands must be given, as an object")
    if "commands" in kinds:
        try:
            return CommandBackend(CommandSet.from_json(kinds["commands"], bootstrap.interface), bootstrap.interface)
        except InvalidValuesError as error:
            raise StartError(f"connector.commands: {error}") from None
    found = load_class(str(kinds["python"].get("class") or ""), directory if bootstrap.files else None, bootstrap.files)
    different = differences(bootstrap.interface, found.interface)
    if different:
        raise StartError("the connector's interface is not the manifest's: " + "; ".join(different))
    try:
        return PythonBackend(found)
    except Exception as error:
        raise StartError(f"the connector cannot be made: {type(error).__name__}: {error}") from error
