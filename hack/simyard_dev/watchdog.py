"""Kills what a test run has started when the run is gone, however it ended: `PID STARTED DIRECTORY`.

The parent-death signal of Linux would not do: it comes when the thread that started a process ends, and
under pytest-xdist that is a worker, which may end before those that share the process with it.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from simyard_dev.processes import Identity, kill_all

POLL_SECONDS = 0.5
# What is being started at the moment of death has its pid file only a moment later.
QUIET_SECONDS = 3.0


def start(directory: Path) -> subprocess.Popen[bytes]:
    """Watch over this process: when it is gone, what has its pid file in the directory is killed."""
    package = Path(__file__).resolve().parent
    return subprocess.Popen(
        [sys.executable, "-m", f"{package.name}.watchdog", *str(Identity.of(os.getpid())).split(), str(directory)],
        cwd=package.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def watch(owner: Identity, directory: Path) -> None:
    """Wait for the owner's end, then kill what has its pid file in the directory, until nothing more comes."""
    while owner.is_alive():
        time.sleep(POLL_SECONDS)
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < QUIET_SECONDS:
        if kill_all(directory):
            quiet_since = time.monotonic()
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    watch(Identity(int(sys.argv[1]), int(sys.argv[2])), Path(sys.argv[3]))
