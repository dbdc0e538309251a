# SPDX-License-Identifier: Apache-2.0
"""A simulated cloud whose time passes when the test says so, and waiting on what a served one does."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from simyard_simulators.oned import Cloud, LifeCycle, Settings, Vm
from simyard_simulators.oned.instantiate import instantiate


@dataclass
class Clock:
    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class World:
    """A cloud whose time passes when the test says so."""

    settings: Settings
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.cloud = Cloud(self.settings, self.clock)
        self.life = LifeCycle(self.cloud)

    def create(self, name: str = "vm", extra: str = "", hold: bool = False, persistent: bool = False) -> Vm:
        user = self.cloud.users[2]
        return instantiate(self.cloud, self.life, user, 0, name, hold, extra, persistent)

    def after(self, seconds: float) -> None:
        self.clock.now += seconds
        self.cloud.advance()

    def running(self, name: str = "vm") -> Vm:
        vm = self.create(name)
        self.after(60)
        assert vm.state_name == "RUNNING"
        return vm


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what a server in this process does."""
    async with asyncio.timeout(240):
        while not condition():  # noqa: ASYNC110 (the server tells nobody)
            await asyncio.sleep(0.001)
