# SPDX-License-Identifier: Apache-2.0
"""A namespace at a real S3 server, for the tests of files."""

from dataclasses import dataclass

from simyard.files.access import StoreAccess
from simyard.files.catalog import FileCatalog
from simyard.files.store import ObjectStore
from simyard_dev.file_store import FileStore


@dataclass(frozen=True)
class FilesWorld:
    """A namespace at a real store."""

    server: FileStore
    access: StoreAccess
    store: ObjectStore
    catalog: FileCatalog
    namespace: str
