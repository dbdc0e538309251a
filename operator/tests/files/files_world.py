# SPDX-License-Identifier: Apache-2.0
"""A namespace at a real S3 server, for the tests of files."""

import os
from dataclasses import dataclass
from pathlib import Path

from simyard.files.access import StoreAccess
from simyard.files.catalog import FileCatalog
from simyard.files.keys import FileOrigin
from simyard.files.store import ObjectStore
from simyard.files.uploads import Upload
from simyard_adapter.digests import FileDigest, digest_file
from simyard_adapter.uploads import UploadOffer
from simyard_dev.file_store import FileStore


@dataclass(frozen=True)
class FilesWorld:
    """A namespace at a real store."""

    server: FileStore
    access: StoreAccess
    store: ObjectStore
    catalog: FileCatalog
    namespace: str


def ignore(_: int) -> None:
    """Ignore the progress."""


def make(path: Path, size: int) -> FileDigest:
    path.write_bytes(os.urandom(size))
    return digest_file(path)


async def offered(world: FilesWorld, digest: FileDigest, origin: FileOrigin = FileOrigin.USER) -> UploadOffer:
    parts = digest.parts if digest.in_parts else ()
    return await world.catalog.offer_upload(world.namespace, origin, Upload(digest.address, digest.size, parts))
