"""The directory of an emulated cloud: who may see it, what lies in it, and who may start or end the cloud."""

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
    """What lies in the directory of one emulated cloud."""

    directory: Path

    @property
    def machines(self) -> Path:
        """One directory per machine."""
        return self.directory / "machines"

    @property
    def process_id(self) -> Path:
        """The process id of the cloud, as text, while it runs."""
        return self.directory / "pid"

    @property
    def identity(self) -> Path:
        """The process id and, so that no other process is taken for it, the start time (field 22 of proc(5)'s stat)."""
        return self.directory / "cloud.process"

    @property
    def next_id(self) -> Path:
        """No machine has had this id or a higher one."""
        return self.directory / "next-id"

    @property
    def log(self) -> Path:
        """The log of the cloud."""
        return self.directory / "cloud.log"

    @property
    def start_log(self) -> Path:
        """What the cloud printed before it had a log."""
        return self.directory / "start.log"

    @contextlib.contextmanager
    def socket(self) -> Iterator[str]:
        """A path of its socket that is short enough to bind and to connect to (108 bytes, unix(7))."""
        directory = os.open(self.directory, os.O_PATH | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{directory}/socket"
        finally:
            os.close(directory)

    def lock(self) -> int | None:
        """The right to start or to end the cloud: a file descriptor that holds it until all its copies are closed.

        None says that somebody else has it.
        """
        lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    async def lock_when_free(self) -> int:
        """The same, as soon as nobody else has it."""
        while (lock := self.lock()) is None:  # noqa: ASYNC110 - flock(2) can be waited for only in a thread
            await asyncio.sleep(_RETRY_SECONDS)
        return lock


def cloud_files(installation: str, site: str) -> CloudFiles:
    """The files of the cloud of a site, below ``$SIMYARD_EMULATED_DIR``, the user's runtime or temporary directory.

    Raises:
        OSError: the directory cannot be made, or others can get at it.
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
        raise PermissionError(f"{directory} must be a directory of ours that nobody else can get at")
