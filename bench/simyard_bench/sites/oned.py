# SPDX-License-Identifier: Apache-2.0
"""Run a simulated oned as a separate process, so that its CPU time does not count as that of the client.

``python -m simyard_bench.sites.oned SCHEDULER TIME_SCALE COST_SCALE`` prints its URL, answers each line of JSON on its
standard input with one line, and ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from simyard_bench.modules import environment
from simyard_dev.errors import SetupError
from simyard_simulators.oned import STOCK, WIDE, Oned, Settings
from simyard_simulators.oned.instantiate import instantiate
from simyard_simulators.oned.template import Template
from simyard_sites.base import Owner
from simyard_sites.opennebula.ownership import Ownership

INSTALLATION = "bench"
USER, PASSWORD = "simyard", "secret"
TEMPLATE = "worker"
IMAGE_OWNER = "oneadmin"
SCHEDULERS = {"stock": STOCK, "wide": WIDE}
_END_SECONDS = 20.0


@dataclass(frozen=True)
class Asked:
    """The requests to oned: calls by method, HTTP requests, and the cost of the calls in the model."""

    calls: Mapping[str, int] = field(default_factory=dict)
    requests: int = 0
    milliseconds: float = 0.0


class SimulatedOned:
    """The process of a simulated oned, as a context; ``scheduler`` is one of :data:`SCHEDULERS`."""

    def __init__(self, scheduler: str, time_scale: float, cost_scale: float) -> None:
        self._command = [sys.executable, "-m", __name__, scheduler, str(time_scale), str(cost_scale)]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
        )
        self.url = str(self._said())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def fill(self, finished: int = 0, running: int = 0) -> list[int]:
        """Add VMs that ended long ago, and running VMs of our site; return the ids of the running VMs."""
        ids: list[int] = self._ask({"finished": finished, "running": running})
        return ids

    def asked(self) -> Asked:
        """Return the requests since the last call of this method."""
        return Asked(**self._ask({}))

    def _ask(self, question: Mapping[str, int]) -> Any:
        assert self._process.stdin is not None
        print(json.dumps(question), file=self._process.stdin, flush=True)
        return self._said()

    def _said(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SetupError(f"the simulated oned has ended with status {self._process.wait(_END_SECONDS)}")
        return json.loads(line)


class _Serving:
    """The server side of this module: it carries out the orders on standard input."""

    def __init__(self, oned: Oned) -> None:
        self._oned = oned

    def answer(self, question: Mapping[str, int]) -> object:
        return self._fill(**question) if question else self._asked()

    def _asked(self) -> object:
        counters = self._oned.counters
        calls, cost = Counter(counters.calls), sum(counters.cost_milliseconds.values())
        answer = {"calls": dict(sorted(calls.items())), "requests": counters.requests, "milliseconds": round(cost, 3)}
        counters.reset()
        return answer

    def _fill(self, finished: int, running: int) -> list[int]:
        """Add VMs as large as instantiated ones, with the label of their owner."""
        cloud = self._oned.cloud
        user = next(user for user in cloud.users.values() if user.name == USER)
        example = instantiate(cloud, self._oned.life, user, 0, "example", True, "", False)
        filled = self._oned.fill(finished, running)
        for oid in filled:
            vm = cloud.vms[oid]
            owner = Owner("bench", vm.name, str(uuid.uuid4()), "bench")
            vm.template = example.template
            vm.user_template = Template(
                [*example.user_template.items(), ("LABELS", Ownership(INSTALLATION, INSTALLATION).label(owner))]
            )
            vm.rendered = None
        return list(filled)[finished:]


async def _serve(scheduler: str, time_scale: float, cost_scale: float) -> None:
    loop = asyncio.get_running_loop()
    settings = Settings(scheduler=SCHEDULERS[scheduler], time_scale=time_scale, cost_scale=cost_scale)
    async with Oned(settings) as oned:
        serving = _Serving(oned)
        questions = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(questions), sys.stdin)
        print(json.dumps(oned.url), flush=True)
        while line := await questions.readline():
            print(json.dumps(serving.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])))
