# SPDX-License-Identifier: Apache-2.0
"""Command ``results``: the result of a finished action, with its files downloaded and verified."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from simyard.api.base import Json
from simyard.api.names import SERVICE_ACTIONS
from simyard.api.quantities import format_bytes
from simyard.api.service_action import ServiceAction, ServiceActionStatus
from simyard.cli.files import download
from simyard.cli.kubectl import Kubectl
from simyard.cli.output import Failure, print_table
from simyard.guest.text import make_printable_line
from simyard_adapter.file_values import FileReference, FileValueError


@click.command("results")
@click.argument("name", metavar="ACTION")
@click.option("-o", "--output-dir", "directory", type=click.Path(file_okay=False, path_type=Path), default=Path(),
              help="The folder for the files; it is created if it does not exist. Default: this folder.")  # fmt: skip
@click.pass_obj
def show_results(kubectl: Kubectl, name: str, directory: Path) -> None:
    """Show the result of ACTION, a finished ServiceAction, and download its files.

    Each file is verified. A file that exists already is never replaced.
    """
    invocation = name.rpartition("/")[2]
    status = ServiceAction.model_validate(kubectl.get(SERVICE_ACTIONS, invocation)).status
    if status.failure is not None:
        raise Failure(f"{status.failure.reason}: {status.failure.message}")
    if status.finished_time is None:
        raise Failure(f"serviceaction/{invocation} is not finished: wait with `kubectl simyard action`, or retry later")
    rows: list[tuple[str, Any]] = []
    for field, value in (read_result(kubectl, status) or {}).items():
        found = list(find_files(field, value))
        rows += [(field, _fetch(kubectl, directory / place, reference)) for place, reference in found]
        if not found:
            rows.append((field, value))
    print_table(["RESULT", "VALUE"], rows)


def read_result(kubectl: Kubectl, status: ServiceActionStatus) -> Any:
    """Return the complete result of an action: from its status, or from the file of a large result.

    Raises:
        Failure: the file does not exist any more, or arrived damaged.
    """
    if status.result_file is None:
        return status.result
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        download(kubectl, status.result_file.file, path)
        return {**(status.result or {}), **json.loads(path.read_bytes())}


def find_files(field: str, value: Json) -> Iterator[tuple[str, FileReference]]:
    """Yield the files of a result, each with its path below the folder for downloads."""
    several = isinstance(value, list)
    for item in value if several else [value]:
        if not isinstance(item, dict) or "file" not in item:
            continue
        try:
            reference = FileReference.from_json(item)
        except FileValueError:
            continue
        name = reference.name if reference.name == make_printable_line(reference.name) else ""
        parts = [part for part in name.split("/") if part and not part.startswith(".")] or [reference.address]
        yield "/".join([field, *parts] if several else parts[-1:]), reference


def describe_value(value: Json) -> Any:
    """Return a value of a result for a table: for a file, its name and size."""
    found = list(find_files("", value))
    if not found:
        return value
    return ", ".join(
        f"{reference.name or reference.address} ({format_bytes(reference.size or 0)})" for _, reference in found
    )


def _fetch(kubectl: Kubectl, path: Path, reference: FileReference) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    download(kubectl, reference.address, path)
    return str(path)
