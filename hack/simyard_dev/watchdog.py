# SPDX-License-Identifier: Apache-2.0
"""Kill the processes of a test run when the run has ended for any reason: `PID STARTED DIRECTORY`.

A killed process cannot stop its children, so a second process watches it. The parent-death signal of Linux is no
alternative, because the kernel sends it when the thread that started the child ends. Under pytest-xdist, this thread
belongs to a worker, which may end before other workers that use the same child.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from simyard_dev.processes import Identity, kill_all

POLL_SECONDS = 0.5
# The pid file of a process that was just being started may appear only after the end of the owner.
QUIET_SECONDS = 3.0


def start(directory: Path) -> subprocess.Popen[bytes]:
    """Start a watchdog, which kills the processes with a pid file in the directory after this process has ended."""
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
    """Wait for the end of the owner, then kill the processes with a pid file in the directory until none is left."""
    while owner.is_alive():
        time.sleep(POLL_SECONDS)
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < QUIET_SECONDS:
        if kill_all(directory):
            quiet_since = time.monotonic()
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    watch(Identity(int(sys.argv[1]), int(sys.argv[2])), Path(sys.argv[3]))
