# SPDX-License-Identifier: Apache-2.0
"""Run the measured servers: the frontends, and yardsticks with the same answers. Each server is pinned to a core."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from pydantic import BaseModel

from simyard_bench import machine
from simyard_bench.modules import command, environment
from simyard_bench.occi import bare_amqp, bare_http
from simyard_bench.occi.cases import Access, Asking
from simyard_bench.occi.load import SERVING, Request, pin
from simyard_bench.world import World
from simyard_dev.errors import SetupError
from simyard_dev.frontends import CERTIFICATE
from simyard_dev.ports import LOOPBACK, Ports
from simyard_dev.processes import Process

GRACE_SECONDS = 10.0
READY_SECONDS = 30.0


@dataclass(frozen=True)
class Server:
    """The URL and the process of a server; with ``queue`` it serves over AMQP."""

    url: str
    ca_file: str
    pid: int
    queue: str = ""


class Frontends:
    """The frontends of an environment: the first one is pinned to the first core, the second one to the last."""

    def __init__(self, world: World) -> None:
        self.access = Access.of(world)
        self._world = world
        self._processes = world.platform.frontends.processes
        available = sorted(os.sched_getaffinity(0))
        self.cores = available[0], available[-1]
        self._directory = world.environment.directory / "yardsticks"
        self._ports = Ports(self._directory)

    def http(self, number: int = 0) -> Server:
        """Return one of the frontends, over HTTPS."""
        return Server(self.access.urls[number], self.access.ca_file, self._pid(number))

    def amqp(self) -> Server:
        """Return the first frontend, over AMQP, while it is the only one."""
        return Server(self.access.amqp_url, self.access.amqp_ca_file, self._pid(0), self.access.amqp_queue)

    def peak_rss_mib(self, count: int) -> float:
        """Return the largest peak memory of the first ``count`` frontends, in MiB."""
        return max(machine.peak_rss_mib(self._pid(number)) for number in range(count))

    def keep_one(self) -> None:
        """Stop the second frontend."""
        self._processes[1].stop(GRACE_SECONDS)
        pin(self._pid(0), self.cores[0])

    def start_second(self) -> None:
        """Start the second frontend, and wait until it serves."""
        self._world.platform.up()
        pin(self._pid(1), self.cores[1])

    @contextlib.contextmanager
    def bare_http(self, asking: Asking, requests: Sequence[Request]) -> Iterator[Server]:
        """Provide a bare handler that sends the present answers of the first frontend."""
        answers = {}
        for number, request in enumerate(requests):
            answer = asking.ask(request)
            file = self._body(f"body-{number}", answer.body)
            answers[request.target] = bare_http.Same(headers=list(answer.headers), body_file=file)
        keys = self._world.platform.directory / "keys"
        script = bare_http.Script(
            port=self._ports.reserve("bare"),
            certificate=keys / f"{CERTIFICATE}.crt",
            key=keys / f"{CERTIFICATE}.key",
            answers=answers,
        )
        with self._serving(bare_http, script) as pid:
            yield Server(f"https://{LOOPBACK}:{script.port}", self.access.ca_file, pid)

    @contextlib.contextmanager
    def bare_amqp(self, asking: Asking, request: Request) -> Iterator[Server]:
        """Provide a bare consumer that answers with the same body."""
        script = bare_amqp.Script(
            url=self.access.amqp_url,
            ca_file=Path(self.access.amqp_ca_file) if self.access.amqp_ca_file else None,
            queue=f"{self.access.amqp_user}.bare",
            body_file=self._body("body-amqp", asking.ask(request).body),
        )
        with self._serving(bare_amqp, script) as pid:
            yield Server(self.access.amqp_url, self.access.amqp_ca_file, pid, script.queue)

    def _body(self, name: str, body: bytes) -> Path:
        self._directory.mkdir(parents=True, exist_ok=True)
        file = self._directory / name
        file.write_bytes(body)
        return file

    @contextlib.contextmanager
    def _serving(self, yardstick: ModuleType, script: BaseModel) -> Iterator[int]:
        """Run a yardstick on the core of the first frontend; provide its pid once it serves."""
        name = yardstick.__name__.rpartition(".")[2]
        file = self._directory / f"{name}.json"
        file.write_text(script.model_dump_json())
        process = Process(self._directory, name)
        process.start([*command(yardstick), file], environment())
        try:
            process.wait_ready(lambda: SERVING in process.log_file.read_text(), READY_SECONDS)
            pid = _pid(process)
            pin(pid, self.cores[0])
            yield pid
        finally:
            process.kill()

    def _pid(self, number: int) -> int:
        return _pid(self._processes[number])


def _pid(process: Process) -> int:
    identity = process.identity
    if identity is None:
        raise SetupError(f"{process.name} has ended.\n{process.log_tail()}")
    return identity.pid
