# SPDX-License-Identifier: Apache-2.0
"""The cache of downloaded files of one worker, by address.

An action gets a hard link to the cached file in its own folder. So a file that actions share is stored once, and its
removal from the cache takes nothing away from a running action. A program that changes the file in place would change
it for later actions too. Therefore a complete file has a fixed time of modification (:data:`SEAL_NS`): a change moves
this time, and the cache then drops the file. The time of the last access orders the files; the cache sets it itself.

A file is in danger between its search or download and its link: another download may need the space. Its action holds
the file for this time (:meth:`FileCache.holding`). The cache removes neither a file that is held nor the beginning of a
file that is being downloaded.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Iterator, Optional

from simyard_adapter.digests import is_address

MAX_CACHE_BYTES = 10 * 2**30
"""Limit of the cached bytes; a quarter of the disk counts if that is less."""
SEAL_NS = 10**9
"""The time of modification of a complete file, in nanoseconds since the epoch."""


class FileCache:
    """The files below one directory, which no other cache uses; any thread may call its methods."""

    def __init__(self, directory: Path, max_bytes: int = MAX_CACHE_BYTES) -> None:
        """Use the files that an earlier adapter left in the directory, and remove its unfinished downloads."""
        self._directory = directory
        self._max_bytes = max_bytes
        self._held: set[str] = set()
        self._lock = threading.Lock()
        for path in directory.iterdir() if directory.exists() else ():
            if not is_address(path.name):
                with contextlib.suppress(OSError):
                    path.unlink()

    @contextlib.contextmanager
    def holding(self, address: str) -> Iterator[None]:
        """Keep a file in the cache while the block runs; there is one block for an address at a time."""
        with self._lock:
            self._held.add(address)
        try:
            yield
        finally:
            with self._lock:
                self._held.discard(address)

    def choose_path(self, address: str) -> Path:
        """Return the path for a new download; :meth:`add` completes the file."""
        self._directory.mkdir(parents=True, exist_ok=True)
        return self._directory / address

    def add(self, address: str) -> Path:
        """Complete a downloaded file, and remove others if the cache is too large."""
        path = self._directory / address
        path.chmod(0o444)
        self._touch(path)
        with self._lock:
            self._remove_oldest({address, *self._held})
        return path

    def adopt(self, partial: Path, address: str) -> Path:
        """Take a complete file of the cache's directory into the cache, and return its path."""
        partial.replace(self._directory / address)
        return self.add(address)

    def find(self, address: str) -> Optional[Path]:
        """Return a cached file, or None if the cache does not have the file as it was downloaded."""
        path = self._directory / address
        try:
            if path.stat().st_mtime_ns != SEAL_NS:
                path.unlink()
                return None
            self._touch(path)
        except FileNotFoundError:
            return None
        return path

    def _touch(self, path: Path) -> None:
        os.utime(path, ns=(time.time_ns(), SEAL_NS))

    def _remove_oldest(self, kept: set[str]) -> None:
        limit = min(self._max_bytes, shutil.disk_usage(self._directory).total // 4)
        files = sorted(self._list_files(), key=lambda item: item[1].st_atime_ns)
        total = sum(status.st_size for _, status in files)
        for path, status in files:
            if total <= limit:
                return
            if is_address(path.name) and path.name not in kept:
                path.unlink(missing_ok=True)
                total -= status.st_size

    def _list_files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self._directory.iterdir():
            with contextlib.suppress(FileNotFoundError):
                yield path, path.stat()


def link_file(source: Path, folder: Path, name: str) -> Path:
    """Make a file appear in a folder, without a copy where the file system permits it, and return its path.

    The name gets a number in front if the folder has a file of this name.

    Raises:
        OSError: The disk is full, or the source is gone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        target = folder / (name if number == 1 else f"{number}-{name}")
        try:
            os.link(source, target)
            return target
        except FileExistsError:
            continue
        except FileNotFoundError:
            raise
        except OSError:  # Another file system, or too many links.
            if not target.exists():
                shutil.copyfile(source, target)
                return target
    raise AssertionError("the numbers do not end")
