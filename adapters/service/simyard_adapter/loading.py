# SPDX-License-Identifier: Apache-2.0
"""Creates the connector's files and its backend from the bootstrap document."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Mapping

from simyard_adapter.backend import Backend
from simyard_adapter.bootstrap import Bootstrap
from simyard_adapter.command_backend import CommandBackend
from simyard_adapter.commands import CommandSet
from simyard_adapter.declarations import InvalidValuesError
from simyard_adapter.errors import StartError
from simyard_adapter.python_backend import PythonBackend, find_differences, load_class


def write_files(files: Mapping[str, str], directory: Path) -> None:
    """Write the manifest's files; a file that begins with ``#!`` becomes executable.

    Raises:
        StartError: A path leads out of the directory.
    """
    for name, text in files.items():
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts or not relative.name or "\\" in name or ":" in name:
            raise StartError(
                f"connector.files: the path {name!r} leads out of the connector's directory; "
                "use a relative path without .."
            )
        path = directory / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            path.chmod(0o755)


def make_backend(bootstrap: Bootstrap, directory: Path) -> Backend:
    """Create the backend for the bootstrap document; ``directory`` contains the manifest's files.

    Raises:
        StartError: The connector cannot be created, or its interface differs from the manifest's.
    """
    kinds = {kind: it for kind, it in bootstrap.connector.items() if isinstance(it, dict)}
    if len(kinds) != 1 or not kinds.keys() <= {"python", "commands"}:
        raise StartError("connector: set exactly one of python and commands, as an object")
    if "commands" in kinds:
        try:
            return CommandBackend(CommandSet.from_json(kinds["commands"], bootstrap.interface), bootstrap.interface)
        except InvalidValuesError as error:
            raise StartError(f"connector.commands: {error}") from None
    found = load_class(str(kinds["python"].get("class") or ""), directory if bootstrap.files else None, bootstrap.files)
    different = find_differences(bootstrap.interface, found.interface)
    if different:
        raise StartError("the class declares another interface than the manifest: " + "; ".join(different))
    try:
        return PythonBackend(found)
    except Exception as error:
        raise StartError(f"cannot create the connector: {type(error).__name__}: {error}") from error
