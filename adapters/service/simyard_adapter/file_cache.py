# SPDX-License-Identifier: Apache-2.0
"""The cache of downloaded files of one worker, by address.

An action gets a hard link to the cached file in its own folder. So a file that actions share is stored once, and its
removal from the cache takes nothing away from a running action. A program that changes the file in place would change
it for later actions too. Therefore a complete file has a fixed time of modification (:data:`SEAL_NS`): a change moves
this time, and the cache then drops the file. The time of the last access orders the files; the cache sets it itself.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import time
from pathlib import Path
from typing import Iterator, Optional

MAX_CACHE_BYTES = 10 * 2**30
"""Limit of the cached bytes; a quarter of the disk counts if that is less."""
SEAL_NS = 10**9
"""The time of modification of a complete file, in nanoseconds since the epoch."""


class FileCache:
    """The files below one directory, which no other cache uses; only methods of one thread at a time may run."""

    def __init__(self, directory: Path, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._directory = directory
        self._max_bytes = max_bytes

    def choose_path(self, address: str) -> Path:
        """Return the path for a new download; :meth:`add` completes the file."""
        self._directory.mkdir(parents=True, exist_ok=True)
        return self._directory / address

    def add(self, address: str) -> Path:
        """Complete a downloaded file, and remove others if the cache is too large."""
        path = self._directory / address
        path.chmod(0o444)
        self._touch(path)
        self._remove_oldest(keep=path)
        return path

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

    def _remove_oldest(self, keep: Path) -> None:
        limit = min(self._max_bytes, shutil.disk_usage(self._directory).total // 4)
        files = sorted(self._list_files(), key=lambda item: item[1].st_atime_ns)
        total = sum(status.st_size for _, status in files)
        for path, status in files:
            if total <= limit:
                return
            if path != keep:
                path.unlink(missing_ok=True)
                total -= status.st_size

    def _list_files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self._directory.iterdir():
            with contextlib.suppress(FileNotFoundError):
                yield path, path.stat()


def link_file(source: Path, folder: Path, name: str) -> Path:
    """Make a file appear in a folder, without a copy where the file system permits it, and return its path.

    The name gets a number in front if the folder has a file of this name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        target = folder / (name if number == 1 else f"{number}-{name}")
        try:
            os.link(source, target)
            return target
        except FileExistsError:
            continue
        except OSError:  # Another file system, or too many links.
            if not target.exists():
                shutil.copyfile(source, target)
                return target
    raise AssertionError("the numbers do not end")
