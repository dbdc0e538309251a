# SPDX-License-Identifier: Apache-2.0
"""Files in the file store: upload, download, list, and the values of parameters and results that are files.

The bytes go straight between this machine and the store, with URLs that the platform signs. Uploads continue where an
earlier attempt ended, and downloads are verified before a file gets its name.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simyard_client.display import Progress, Table, make_printable
from simyard_client.errors import FileError
from simyard_client.paths import FILES, Json, build_subresource_path
from simyard_client.transfer.digests import digest_file, is_address
from simyard_client.transfer.file_values import FileReference, FileValueError
from simyard_client.transfer.transfers import SignedRequest, TransferError, Transfers
from simyard_client.transfer.uploads import UploadOffer, upload_file
from simyard_client.watching import list_items

if TYPE_CHECKING:
    from simyard_client.connection import Connection


class File:
    """A file in the file store: a value of a result, or the answer to an upload.

    Attributes:
        address: The address, a digest of the content.
        name: The name; empty if it is unknown.
        size: The number of bytes; None if it is unknown.
    """

    def __init__(self, connection: Connection, reference: FileReference) -> None:
        """Refer to a stored file."""
        self._connection = connection
        self._reference = reference
        self.address = reference.address
        self.name = reference.name
        self.size = reference.size

    def download(self, path: str | Path = ".", *, progress: bool = True) -> Path:
        """Download the file, verify it, and return its path. In a folder, the file gets its own name.

        Raises:
            FileError: The file does not exist any more, cannot be written, or arrived damaged.
            FileExistsError: There is such a file already.
        """
        return download(self._connection, self.address, Path(path), name=self.name, progress=progress)

    def read_bytes(self) -> bytes:
        """Return the content of the file, which must fit into memory."""
        return read_bytes(self._connection, self.address)

    def to_json(self) -> Json:
        """Return the file as the value of a parameter."""
        return self._reference.to_json()

    def __repr__(self) -> str:
        size = "" if self.size is None else f", {self.size} bytes"
        return f"<File {make_printable(self.name) or 'without a name'}, {self.address}{size}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, File) and other.address == self.address

    def __hash__(self) -> int:
        return hash(self.address)


def upload(connection: Connection, path: Path, *, progress: bool = True) -> File:
    """Upload a file unless the store has it, and return it.

    Raises:
        FileError: The file cannot be read, or the store refused it.
    """
    collection = build_subresource_path(FILES, connection.namespace)
    try:
        size = path.stat().st_size
        with Progress(f"reading {path.name}", size, shown=progress, unit="B") as bar:
            digest = digest_file(path, bar.add)
        spec: Json = {"address": digest.address, "bytes": digest.size, "name": path.name}
        if digest.in_parts:
            spec["parts"] = [part.hex() for part in digest.parts]

        def get_offer(upload_id: str, first_part: int) -> UploadOffer:
            more = {"uploadId": upload_id, "firstPart": first_part} if upload_id else {}
            body = {"spec": {**spec, **more}}
            answer = connection.run(lambda api: api.create(collection, body, repeatable=True))
            return UploadOffer.from_json(answer["status"])

        with Progress(f"uploading {path.name}", size, shown=progress, unit="B") as bar:
            upload_file(_open_transfers(connection), path, digest, get_offer, bar.add)
    except OSError as error:
        raise FileError(f"{path}: cannot read the file: {error.strerror or error}") from None
    except (ValueError, TransferError) as error:
        raise FileError(f"{path}: the upload failed: {error}") from None
    return File(connection, FileReference(digest.address, path.name, digest.size))


def download(connection: Connection, address: str, path: Path, *, name: str = "", progress: bool = True) -> Path:
    """Download a file, verify it, and return its path.

    ``path`` may be a folder; the file then gets ``name``, or the name under which it was uploaded.

    Raises:
        FileError: The file does not exist, cannot be written, or arrived damaged.
        FileExistsError: There is such a file already.
    """
    if not is_address(address):
        raise FileError(f"{address[:100]!r} is no address of a file: expected sha256: or sha256-64m: and 64 digits")
    place = build_subresource_path(FILES, connection.namespace, address)
    found = connection.get(place)
    if path.is_dir():
        path = path / _choose_name(name or found["spec"].get("name") or "", address)
    if path.exists():
        raise FileExistsError(f"{path} exists already: choose another name, or delete it first")

    def get_request() -> SignedRequest:
        nonlocal found
        current, found = found or connection.get(place), {}
        return SignedRequest.from_json(current["status"]["download"])

    try:
        with Progress(f"downloading {path.name}", found["spec"]["bytes"], shown=progress, unit="B") as bar:
            _open_transfers(connection).download(get_request, path, address, bar.add)
    except (OSError, ValueError, TransferError) as error:
        raise FileError(f"{path}: the download failed: {error}") from None
    return path


def read_bytes(connection: Connection, address: str) -> bytes:
    """Return the verified content of a file."""
    with tempfile.TemporaryDirectory(prefix="simyard-") as folder:
        return download(connection, address, Path(folder) / "content", progress=False).read_bytes()


def list_files(connection: Connection) -> Table:
    """Return a table of the uploaded files of the namespace."""
    path = build_subresource_path(FILES, connection.namespace)
    items, _ = connection.run(lambda api: list_items(api, path))
    rows = [
        (
            item["metadata"]["name"],
            item["spec"].get("name") or "",
            item["spec"]["bytes"],
            item["status"].get("owner") or "",
            item["metadata"]["creationTimestamp"],
        )
        for item in items
    ]
    return Table(("address", "name", "bytes", "owner", "created"), rows, {"bytes": "B"})


def delete_file(connection: Connection, address: str) -> None:
    """Delete an uploaded file."""
    place = build_subresource_path(FILES, connection.namespace, address)
    connection.run(lambda api: api.delete(place))


def make_values(connection: Connection, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a result, in which references to files are :class:`File`."""

    def convert(value: Any) -> Any:
        if isinstance(value, list):
            return [convert(item) for item in value]
        if isinstance(value, dict) and "file" in value:
            try:
                return File(connection, FileReference.from_json(value))
            except FileValueError:
                return value
        return value

    return {name: convert(value) for name, value in values.items()}


def make_parameters(connection: Connection, values: Mapping[str, Any], file_names: frozenset[str]) -> dict[str, Any]:
    """Return parameters as JSON has them: numbers of numpy as numbers, files as references.

    ``file_names`` has the names of the parameters that are files: a path there is uploaded, and a URL is sent as it is.
    """

    def convert(value: Any, uploads: bool) -> Any:
        if isinstance(value, File):
            return value.to_json()
        if uploads and isinstance(value, str) and is_address(value):
            return FileReference(value).to_json()
        if uploads and isinstance(value, str) and value.startswith(("https://", "http://")):
            return FileReference("", url=value).to_json()
        if isinstance(value, Path) or (uploads and isinstance(value, str)):
            return upload(connection, Path(value)).to_json()
        if isinstance(value, Mapping):
            return {str(name): convert(item, False) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [convert(item, uploads) for item in value]
        to_python: Callable[[], Any] | None = getattr(value, "tolist", None)  # scalars and arrays of numpy
        return to_python() if to_python is not None else value

    return {name: convert(value, name in file_names) for name, value in values.items()}


def _choose_name(name: str, address: str) -> str:
    """Return the last part of a name, unless it could do harm here; then the address."""
    last = name.rpartition("/")[2]
    return last if last and last == make_printable(last) and not last.startswith(".") else address.replace(":", "-")


def _open_transfers(connection: Connection) -> Transfers:
    return Transfers(connection.files_ca or None)
