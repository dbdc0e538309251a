"""A whole environment in one directory: the control plane and the broker, started and stopped together."""

import shlex
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from simyard_dev import broker, controlplane
from simyard_dev.errors import SetupError
from simyard_dev.files import write_whole
from simyard_dev.progress import say

STATISTICS_SECONDS = 30
"""To look at every channel and queue of thousands of workers takes the broker half a core at its default of 5 s."""


class Environment:
    """What a directory such as `.run/dev` holds.

    `DIR/kubeconfig` is the administrator's, `DIR/env` has the addresses of everything, for a shell to source.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.control_plane = controlplane.ControlPlane(self.directory / "controlplane")
        self.broker = broker.open_broker(self.directory / "broker", statistics_seconds=STATISTICS_SECONDS)
        self.kubeconfig = self.directory / "kubeconfig"

    def is_down(self) -> bool:
        """Tell whether nothing of it runs."""
        return not self.broker.is_running() and not any(it.is_alive() for it in self.control_plane.processes)

    def up(self, *, fresh: bool = False) -> None:
        """Start what does not run, and write the kubeconfig and the addresses.

        Raises:
            SetupError: something is missing or did not become ready; the rest runs.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        _in_parallel(
            lambda: self.control_plane.start(fresh=fresh),
            lambda: self.broker.start(fresh=fresh),
        )
        write_whole(self.kubeconfig, self.control_plane.kubeconfig.read_bytes(), private=True)
        self.write_variables({})

    def down(self) -> None:
        """Stop everything; the state stays for the next start."""
        _in_parallel(
            lambda: self.control_plane.stop(controlplane.GRACE_SECONDS),
            lambda: self.broker.stop(broker.GRACE_SECONDS),
        )

    def write_variables(self, more: Mapping[str, str]) -> None:
        """Write `DIR/env`, mode 0600: where control plane and broker are, and what the caller adds."""
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
    """Run all tasks to their end, then report all problems at once.

    Ctrl-C is raised after the tasks have ended: the caller can stop only servers whose start is recorded.
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
