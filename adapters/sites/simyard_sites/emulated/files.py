# SPDX-License-Identifier: Apache-2.0
"""Manages the directory of an emulated cloud: permissions, files, and the lock for the start and end of the cloud."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

DIRECTORY_VARIABLE = "SIMYARD_EMULATED_DIR"
_RETRY_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class CloudFiles:
    """The files in the directory of one emulated cloud."""

    directory: Path

    @property
    def machines(self) -> Path:
        """The parent directory of the machines' directories."""
        return self.directory / "machines"

    @property
    def process_id(self) -> Path:
        """The file with the process id of the cloud, while it runs."""
        return self.directory / "pid"

    @property
    def identity(self) -> Path:
        """The file with the process id and start time (field 22 of proc(5)'s stat), which identify the process."""
        return self.directory / "cloud.process"

    @property
    def next_id(self) -> Path:
        """The file with a lower bound for the ids of new machines."""
        return self.directory / "next-id"

    @property
    def log(self) -> Path:
        """The log of the cloud."""
        return self.directory / "cloud.log"

    @property
    def start_log(self) -> Path:
        """The file with the output of the cloud until the cloud has a log."""
        return self.directory / "start.log"

    @contextlib.contextmanager
    def open_socket_path(self) -> Iterator[str]:
        """Yield a path of the socket that is short enough for bind and connect (108 bytes, unix(7))."""
        directory = os.open(self.directory, os.O_PATH | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{directory}/socket"
        finally:
            os.close(directory)

    def lock(self) -> int | None:
        """Take the lock for the start or end of the cloud; return its descriptor, None if another process has the lock.

        The lock is free again when all copies of the file descriptor are closed.
        """
        lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    async def lock_when_free(self) -> int:
        """Wait for the lock and return its file descriptor."""
        while (lock := self.lock()) is None:  # noqa: ASYNC110 - flock(2) can be waited for only in a thread
            await asyncio.sleep(_RETRY_SECONDS)
        return lock


def get_cloud_files(installation: str, site: str) -> CloudFiles:
    """Return the files of a site's cloud, below ``$SIMYARD_EMULATED_DIR``, the user's runtime or temporary directory.

    Raises:
        OSError: The directory cannot be created, or other users can access it.
    """
    if base := os.environ.get(DIRECTORY_VARIABLE):
        root = Path(base)
    elif runtime := os.environ.get("XDG_RUNTIME_DIR"):
        root = Path(runtime) / "simyard-emulated"
    else:
        root = Path(tempfile.gettempdir()) / f"simyard-emulated-{os.geteuid()}"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    root = root.resolve()
    _check_ours(root, stat.S_IWGRP | stat.S_IWOTH)
    directory = root / quote(f"{installation}-{site}", safe="")
    directory.mkdir(mode=0o700, exist_ok=True)
    _check_ours(directory, stat.S_IRWXG | stat.S_IRWXO)
    return CloudFiles(directory)


def _check_ours(directory: Path, forbidden_mode: int) -> None:
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & forbidden_mode:
        raise PermissionError(
            f"{directory} must belong to the user of this process, and no other user may have access to it"
        )
