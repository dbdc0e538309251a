# SPDX-License-Identifier: Apache-2.0
"""A cloud in memory, in the place of a vendor's cloud interface."""

import asyncio
import time
from collections import deque
from typing import Any


class RefusedError(Exception):
    """A refusal of the cloud, with an HTTP status."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class Cloud:
    """A cloud whose machines start and end within milliseconds; it remembers ended machines."""

    def __init__(self) -> None:
        self.machines: dict[str, dict[str, Any]] = {}
        self.ended: list[dict[str, Any]] = []
        self.log: list[dict[str, Any]] = []
        self.forgotten = 0  # The number of log entries that are dropped.
        self.news = asyncio.Event()
        self.tokens = {"good"}
        self.looked_at = 0
        self.files: set[str] = set()  # The files that customers have stored.
        # Faults
        self.answers_to_lose = 0
        self.refusals: deque[RefusedError] = deque()
        self.creates_refused: RefusedError | None = None
        self.is_down = False
        self.is_silent = False
        self.answers_nobody = False
        self.is_held = False

    async def request(self, token: str, verb: str, *arguments: Any) -> Any:
        """Make one request over the network; it may be refused, and its answer may be lost."""
        await asyncio.sleep(0)
        if self.is_down:
            raise ConnectionRefusedError("no server is listening")
        if token not in self.tokens:
            raise RefusedError(401, "the token is not valid")
        if self.answers_nobody:
            await asyncio.Event().wait()
        answer = await getattr(self, verb)(*arguments)
        if verb in ("create", "delete") and self.answers_to_lose:
            self.answers_to_lose -= 1
            raise ConnectionResetError("the connection was lost")
        await asyncio.sleep(0)
        return answer

    async def version(self) -> str:
        return "1.0"

    async def create(self, name: str, labels: dict[str, str], document: bytes, memory_mib: int) -> dict[str, Any]:
        if any(machine["name"] == name for machine in self.machines.values()):
            raise RefusedError(409, f"a machine with the name {name} exists")
        if refusal := self.refusals.popleft() if self.refusals else self.creates_refused:
            raise refusal
        if memory_mib <= 0:
            raise RefusedError(422, "a machine must have memory")
        machine_id = str(len(self.machines) + len(self.ended))
        machine = {"id": machine_id, "name": name, "labels": labels, "times": {}}
        self.machines[machine_id] = machine
        self.enter(machine, "pending", then="running")
        return dict(machine)

    async def delete(self, machine_id: str) -> None:
        machine = await self.get(machine_id)
        if machine["state"] != "ending":
            self.enter(self.machines[machine_id], "ending", then="gone")

    async def get(self, machine_id: str) -> dict[str, Any]:
        if machine_id not in self.machines:
            raise RefusedError(404, f"the machine {machine_id} does not exist")
        self.looked_at += 1
        return dict(self.machines[machine_id])

    async def power(self, machine_id: str, state: str) -> dict[str, Any]:
        machine = await self.get(machine_id)
        if machine["state"] not in ("running", "stopped"):
            raise RefusedError(409, f"the machine is {machine['state']}")
        self.enter(self.machines[machine_id], state)
        return await self.get(machine_id)

    async def machines_of(self, owner: str) -> tuple[int, list[dict[str, Any]]]:
        """Return the length of the log, and the machines that have not ended."""
        found = [dict(machine) for machine in self.machines.values() if machine["labels"]["site"] == owner]
        self.looked_at += len(found)
        return self.forgotten + len(self.log), found

    async def changes(self, owner: str, since: int, seconds: float) -> tuple[int, list[dict[str, Any]]]:
        """Wait for changes, at most ``seconds``; return the length of the log, and its entries from ``since``."""
        try:
            async with asyncio.timeout(seconds):
                while self.is_silent or self.forgotten + len(self.log) <= since:
                    await self.news.wait()
        except TimeoutError:
            return since, []
        if since < self.forgotten:
            raise RefusedError(410, "the log's entries from that time are dropped")
        news = self.log[since - self.forgotten :]
        return self.forgotten + len(self.log), [item for item in news if item["labels"]["site"] == owner]

    def enter(self, machine: dict[str, Any], state: str, then: str = "") -> None:
        """Bring a machine into a state, and shortly after into the next."""
        machine["state"] = state
        machine["times"] = {state: time.time()} | machine["times"]
        if state == "gone":
            self.ended.append(self.machines.pop(machine["id"]))
        self.log.append(dict(machine))
        self.news.set()
        self.news = asyncio.Event()
        if then:
            asyncio.get_running_loop().call_later(0.002, self._go_on, machine, state, then)

    def _go_on(self, machine: dict[str, Any], state: str, then: str) -> None:
        if self.is_held:
            asyncio.get_running_loop().call_later(0.002, self._go_on, machine, state, then)
        elif machine["state"] == state:
            self.enter(machine, then)
