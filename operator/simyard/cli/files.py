# SPDX-License-Identifier: Apache-2.0
"""Commands ``cp`` and ``files``, which move files between this machine and the file store, and list them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from simyard.api.base import Json
from simyard.api.names import FILES
from simyard.api.quantities import format_bytes
from simyard.cli.kubectl import Kubectl
from simyard.cli.output import Failure, as_list, format_age, make_output_option, print_object, print_table, say
from simyard.guest.text import make_printable_line
from simyard_adapter.digests import FileDigest, digest_file, is_address
from simyard_adapter.file_values import FileReference
from simyard_adapter.transfers import SignedRequest, TransferError, Transfers
from simyard_adapter.uploads import UploadOffer, upload_file

PREFIX = "files:"
CA_VARIABLE = "SIMYARD_FILES_CA_FILE"
PAGE = 500


@click.command()
@click.argument("source")
@click.argument("destination")
@click.pass_obj
def cp(kubectl: Kubectl, source: str, destination: str) -> None:
    """Copy a file from SOURCE to DESTINATION; one of them is in the file store and begins with files:.

    `cp deck.inp files:` uploads a file and prints its address. A file that is in the store already is not sent again.
    `cp files:sha256:... deck.inp` downloads a file and verifies it. If DESTINATION is a folder, the file gets the name
    that it had at the upload. An existing file is never replaced.
    """
    if source.startswith(PREFIX) == destination.startswith(PREFIX):
        raise click.UsageError("write `cp FILE files:` to upload, or `cp files:ADDRESS FILE` to download")
    if destination.startswith(PREFIX):
        if destination != PREFIX:
            raise click.UsageError("the store names a file by its content: write `files:` without an address")
        say(upload(kubectl, Path(source)).address)
    else:
        download(kubectl, source.removeprefix(PREFIX), Path(destination))


@click.command("files")
@click.option("--delete", "address", metavar="ADDRESS", help="Delete this file instead.")
@make_output_option()
@click.pass_obj
def list_files(kubectl: Kubectl, address: str | None, output: str | None) -> None:
    """List the uploaded files of the namespace, or delete one."""
    if address:
        kubectl.raw("delete", FILES, _check_address(address.removeprefix(PREFIX)))
        say(f"file.{FILES.group}/{address} deleted")
        return
    items = list(_list(kubectl))
    if output:
        return print_object(as_list(items), output)
    rows = [
        (
            item["metadata"]["name"],
            format_bytes(item["spec"]["bytes"]),
            format_age(datetime.fromisoformat(item["metadata"]["creationTimestamp"])),
            make_printable_line(item["status"].get("owner", "")),
            make_printable_line(item["spec"].get("name", "")),
        )
        for item in items
    ]
    return print_table(["ADDRESS", "SIZE", "AGE", "OWNER", "NAME"], rows)


def upload(kubectl: Kubectl, path: Path) -> FileDigest:
    """Upload a file with a progress bar on standard error, unless the store has it, and return its digest.

    Raises:
        Failure: the file cannot be read, or the store refused it.
    """
    try:
        size = path.stat().st_size
        with _progress(f"reading {path.name}", size) as on_bytes:
            digest = digest_file(path, on_bytes)
        spec = {"address": digest.address, "bytes": digest.size, "name": path.name}
        parts = {"parts": [part.hex() for part in digest.parts]} if digest.in_parts else {}

        def get_offer(upload_id: str, first_part: int) -> UploadOffer:
            more = {"uploadId": upload_id, "firstPart": first_part} if upload_id else {}
            answer = kubectl.raw("create", FILES, "", {"spec": {**spec, **parts, **more}})
            return UploadOffer.from_json(answer["status"])

        with _progress(f"uploading {path.name}", size) as on_bytes:
            upload_file(_open_transfers(), path, digest, get_offer, on_bytes)
        return digest
    except OSError as error:
        raise Failure(f"{path}: cannot read the file: {error.strerror or error}") from None
    except ValueError as error:
        raise Failure(f"{path}: {error}") from None
    except TransferError as error:
        raise Failure(f"{path}: the upload failed: {error}") from None


def make_reference(kubectl: Kubectl, text: str) -> Json:
    """Return the value of a file parameter: ``@PATH`` uploads a file, an address names an uploaded one, a URL stays.

    Raises:
        Failure: the file cannot be read, or the store refused it.
        click.BadParameter: the text is neither.
    """
    if text.startswith("@"):
        path = Path(text[1:])
        digest = upload(kubectl, path)
        return FileReference(digest.address, path.name, digest.size).to_json()
    if "://" in text:  # the API server decides whether the platform allows the URL
        return {"url": text}
    address = text.removeprefix(PREFIX)
    if not is_address(address):
        raise click.BadParameter(f"{text!r} is no file: write @PATH, the address of a file (sha256:...), or a URL")
    return FileReference(address).to_json()


def download(kubectl: Kubectl, address: str, path: Path, *, silent: bool = False) -> None:
    """Download a file, with a progress bar on standard error unless ``silent``, and verify it.

    ``path`` may be a folder; the file then gets the name under which it was uploaded.

    Raises:
        Failure: the file does not exist, cannot be written, or arrived damaged.
    """
    found = kubectl.raw("get", FILES, _check_address(address))
    if path.is_dir():
        path = path / _choose_name(found["spec"].get("name") or "", address)
    if path.exists():
        raise Failure(f"{path} exists already: choose another name, or delete it first")

    def get_request() -> SignedRequest:
        nonlocal found
        current, found = found or kubectl.raw("get", FILES, address), {}
        return SignedRequest.from_json(current["status"]["download"])

    try:
        with _progress(f"downloading {path.name}", found["spec"]["bytes"], silent=silent) as on_bytes:
            _open_transfers().download(get_request, path, address, on_bytes)
    except (OSError, ValueError, TransferError) as error:
        raise Failure(f"{path}: the download failed: {error}") from None


def _list(kubectl: Kubectl) -> Iterator[Json]:
    following = ""
    while True:
        page = kubectl.raw(
            "get", FILES, f"?limit={PAGE}" + (f"&continue={quote(following, safe='')}" if following else "")
        )
        yield from page["items"]
        following = page["metadata"].get("continue", "")
        if not following:
            return


def _choose_name(name: str, address: str) -> str:
    """Return the name under which a file was uploaded; its address if the name is not safe as a file name."""
    harmless = name == make_printable_line(name) and "/" not in name and not name.startswith(".")
    return name if name and harmless else address


def _check_address(address: str) -> str:
    if not is_address(address):
        raise click.UsageError(f"{address!r} is not the address of a file: see `kubectl simyard files`")
    return address


def _open_transfers() -> Transfers:
    file = os.environ.get(CA_VARIABLE)
    return Transfers(Path(file).read_text() if file else None)


@contextmanager
def _progress(label: str, size: int, *, silent: bool = False) -> Iterator[Callable[[int], Any]]:
    """Show a progress bar on standard error, unless ``silent`` or if standard error is no terminal."""
    with click.progressbar(
        length=max(size, 1), label=make_printable_line(label), file=sys.stderr, hidden=silent or not sys.stderr.isatty()
    ) as bar:
        yield bar.update
