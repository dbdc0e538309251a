# SPDX-License-Identifier: Apache-2.0
"""Command ``logs``: the log of a worker, or of an action while it runs and after its worker is gone.

The file store has the first lines of an action, in parts. The worker has all lines, but only while it exists and for
some time after the action. A reader therefore downloads the stored parts first, and then asks the worker for the lines
after the last stored byte. The API removes control characters from the lines of a worker, so the reader cannot count
their bytes; it counts lines instead.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from simyard.api.names import SERVICE_ACTIONS, WORKERS
from simyard.api.service_action import ServiceAction, StoredFile
from simyard.cli.files import download
from simyard.cli.kubectl import Kubectl, KubectlError
from simyard.cli.output import Failure, say
from simyard.cli.targets import list_names
from simyard.guest.text import make_printable
from simyard.plan.actions import get_invocation_id, is_finished

ACTION_PREFIXES = ("action", "serviceaction", "serviceactions", "serviceaction.simyard.dev")
FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 8.0
"""Maximum pause before a follower tries again, if the action has no worker or its worker does not answer."""


class WorkerType(click.ParamType[str]):
    """The type of a command line argument that names a worker, with or without ``worker/``."""

    name = "worker"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name without ``worker/``."""
        return str(value).removeprefix("worker/")

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names of workers that begin with the incomplete word."""
        return [CompletionItem(name) for name in list_names(ctx, WORKERS) if name.startswith(incomplete)]


@click.command("logs")
@click.argument("target", metavar="WORKER|ACTION", type=WorkerType())
@click.option("--tail", type=click.IntRange(min=1), help="Print only this number of lines, from the end of the log.")
@click.option("-f", "--follow", is_flag=True, help="Print further lines as they come, until the action ends.")
@click.pass_obj
def show_logs(kubectl: Kubectl, target: str, tail: int | None, follow: bool) -> None:
    """Print the log of a WORKER, or of an ACTION (action/NAME, a ServiceAction).

    The log of a worker has the lines of its service adapter and of its program. The log of an action is kept in the
    file store, in parts while the action runs, so it outlives the worker. The newest lines come from the worker.
    """
    kind, _, name = target.rpartition("/")
    if not kind:
        words = [f"tailLines={tail}"] * bool(tail) + ["follow=true"] * follow
        for line in kubectl.stream_subresource(WORKERS, target, "log" + "?" * bool(words) + "&".join(words)):
            say(line, nl=False)
        return
    if kind not in ACTION_PREFIXES:
        raise click.UsageError(f"{kind}/ is not a kind with a log: write WORKER, or action/NAME")
    log = ActionLog(kubectl, name)
    lines = log.read_present(wait=follow)
    for line in deque(lines, tail) if tail else lines:
        say(line, nl=False)
    for line in log.follow() if follow else ():
        say(line, nl=False)


class ActionLog:
    """A reader of the log of a ServiceAction. It remembers how far it has read."""

    def __init__(
        self,
        kubectl: Kubectl,
        name: str,
        *,
        fetch: Callable[[str, Path], None] | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Create a reader at the beginning of the log. ``fetch`` downloads the file with an address to a path."""
        self._kubectl = kubectl
        self._name = name
        self._fetch = fetch or (lambda address, path: download(kubectl, address, path, silent=True))
        self._sleep = sleep
        self._invocation = ""
        self._stored = 0
        """The number of bytes of the stored parts that were read."""
        self._seen = 0
        """The number of lines after these bytes that were read from the worker."""

    def read_present(self, *, wait: bool = False) -> Iterator[str]:
        """Yield the lines that exist now and that the reader has not read yet.

        Raises:
            Failure: no worker has begun the action (unless ``wait``), or a part of the log is gone.
            KubectlError: the action does not exist, or the worker of a running action cannot be reached.
        """
        action = self._get_action()
        if not action.status.worker and not is_finished(action) and not wait:
            raise Failure(f"serviceaction/{self._name} has no log yet: no worker has begun it")
        yield from self._read(action, follow=False)

    def follow(self) -> Iterator[str]:
        """Yield further lines as soon as the program writes them, until the action ends.

        If another worker runs the action again meanwhile, the lines of the new run follow.
        """
        pause = FIRST_PAUSE_SECONDS
        while True:
            action = self._get_action()
            with contextlib.suppress(KubectlError):  # the worker may be back soon, or the action gets another one
                for line in self._read(action, follow=not is_finished(action)):
                    pause = FIRST_PAUSE_SECONDS
                    yield line
            if is_finished(action):
                return
            self._sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def _get_action(self) -> ServiceAction:
        return ServiceAction.model_validate(self._kubectl.get(SERVICE_ACTIONS, self._name))

    def _read(self, action: ServiceAction, *, follow: bool) -> Iterator[str]:
        status = action.status
        invocation = get_invocation_id(action)
        repeated = status.log and sum(part.bytes or 0 for part in status.log) < self._stored
        if invocation != self._invocation or repeated:  # another run of the action has another log
            self._invocation, self._stored, self._seen = invocation, 0, 0
        yield from self._read_parts(status.log)
        if not status.worker:
            return
        try:
            yield from self._read_worker(status.worker, follow)
        except KubectlError:
            if not is_finished(action):  # else the stored parts are the log
                raise

    def _read_parts(self, parts: Sequence[StoredFile]) -> Iterator[str]:
        end = 0
        for part in parts:
            start, end = end, end + (part.bytes or 0)
            if end <= self._stored:
                continue
            for line in self._read_file(part.file, self._stored - start):
                if self._seen:
                    self._seen -= 1
                else:
                    yield line
            self._stored = end

    def _read_file(self, address: str, start: int) -> Iterator[str]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log"
            self._fetch(address, path)
            with path.open("rb") as skipped:
                skipped.seek(start)
                for line in skipped:
                    yield make_printable(line.decode(errors="replace"))

    def _read_worker(self, worker: str, follow: bool) -> Iterator[str]:
        query = f"log?invocation={self._invocation}&after={self._stored}" + "&follow=true" * follow
        for number, line in enumerate(self._kubectl.stream_subresource(WORKERS, worker, query), 1):
            if number > self._seen and line.endswith("\n"):  # else the answer was cut in the middle of the line
                self._seen = number
                yield line
