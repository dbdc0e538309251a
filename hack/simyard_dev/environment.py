# SPDX-License-Identifier: Apache-2.0
"""Run a whole environment in one directory: control plane, broker and file store start and stop together."""

import shlex
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from simyard_dev import controlplane
from simyard_dev.broker import GRACE_SECONDS
from simyard_dev.errors import SetupError
from simyard_dev.file_store import FileStore
from simyard_dev.files import write_whole
from simyard_dev.local_broker import open_broker
from simyard_dev.progress import say

STATISTICS_SECONDS = 30
"""Interval of the broker's statistics in seconds. With the default of 5 s, thousands of workers cost half a core."""


class Environment:
    """The control plane, the broker and the file store of a directory such as `.run/dev`.

    `DIR/kubeconfig` is the kubeconfig of the administrator; `DIR/env` has all addresses, for a shell to source.
    """

    def __init__(self, directory: Path, statistics_seconds: int = STATISTICS_SECONDS) -> None:
        self.directory = directory.absolute()
        self.control_plane = controlplane.ControlPlane(self.directory / "controlplane")
        self.files = FileStore(self.directory / "files")
        self.broker = open_broker(self.directory / "broker", statistics_seconds=statistics_seconds)
        self.kubeconfig = self.directory / "kubeconfig"

    def is_down(self) -> bool:
        """Return whether no process of the environment runs."""
        return (
            not self.broker.is_running()
            and not self.files.is_running()
            and not any(it.is_alive() for it in self.control_plane.processes)
        )

    def up(self, *, fresh: bool = False) -> None:
        """Start the servers that do not run, and write the kubeconfig and the addresses.

        Raises:
            SetupError: a program is missing or a server did not become ready; the other servers keep running.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        _in_parallel(
            lambda: self.control_plane.start(fresh=fresh),
            lambda: self.broker.start(fresh=fresh),
            lambda: self.files.start(fresh=fresh),
        )
        write_whole(self.kubeconfig, self.control_plane.kubeconfig.read_bytes(), private=True)
        self.write_variables({})

    def down(self) -> None:
        """Stop all servers and keep their state for the next start."""
        _in_parallel(
            lambda: self.control_plane.stop(controlplane.GRACE_SECONDS),
            lambda: self.broker.stop(GRACE_SECONDS),
            self.files.stop,
        )

    def write_variables(self, more: Mapping[str, str]) -> None:
        """Write `DIR/env` (mode 0600): the addresses of control plane and broker, and the variables in `more`."""
        variables = {
            "KUBECONFIG": str(self.kubeconfig),
            "AMQP_URL": self.broker.url,
            "AMQP_TLS_URL": self.broker.tls_url,
            "AMQP_CA_FILE": self.broker.ca_file and str(self.broker.ca_file),
            "RABBITMQ_MANAGEMENT_URL": self.broker.management_url,
            **more,
        }
        lines = (f"export {name}={shlex.quote(value)}\n" for name, value in variables.items() if value)
        write_whole(self.directory / "env", "".join(lines), private=True)


def _in_parallel(*tasks: Callable[[], None]) -> None:
    """Run all tasks at the same time, wait until all have ended, then raise one error with all their problems.

    After Ctrl-C, the function also waits until the tasks have ended: the caller can only stop servers that have a pid
    file.
    """
    with ThreadPoolExecutor(len(tasks)) as executor:
        futures = [executor.submit(task) for task in tasks]
        try:
            wait(futures)
        except KeyboardInterrupt:
            say("interrupted: waiting for the servers that are starting")
            wait(futures)
            raise
    errors = [error for future in futures if (error := future.exception())]
    for error in errors:
        if not isinstance(error, SetupError):
            raise error
    if errors:
        raise SetupError("\n".join(str(error) for error in errors))
