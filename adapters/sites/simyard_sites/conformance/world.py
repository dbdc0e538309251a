"""What a provider's author gives to the suite: a cloud for each test, and switches that make it misbehave."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NoReturn

import pytest

from simyard_sites.base import Machine, MachineRequest, Site


def _lacks(switch: str) -> NoReturn:
    pytest.skip(f"this world has no switch {switch}")


class World:
    """One cloud, without machines of ours, for one test; ``make_world`` builds it and takes it away.

    A provider subclasses it: :meth:`site` is needed, :meth:`request` and :meth:`connections` where the default does not
    fit, and as many switches as the cloud, its simulator or a proxy before it can offer. A test whose switch is missing
    is skipped, and the reason names the switch; a switch may skip by itself (``pytest.skip``) where it depends.

    Attributes:
        deadline_seconds: how long a test waits for a machine to run or to be gone, and for a lost event to be made up.
        burst: how many machines the test of a burst creates.
        kept_connections: how many connections a site may keep for later calls, after calls that were cancelled.
    """

    deadline_seconds = 30.0
    burst = 500
    kept_connections = 32

    def site(self, installation: str = "default", name: str = "site") -> Site:
        """A new site object for this cloud, as after a restart of the control plane; the suite closes it.

        ``name`` is that of its CloudSite. Sites of another installation or name use the same account, namespace and
        settings. On a cloud that several tests share, make installations unique.
        """
        raise NotImplementedError

    def request(self, request: MachineRequest) -> MachineRequest:
        """The request as this cloud needs it: add what it cannot do without, an image say (``dataclasses.replace``)."""
        return request

    def connections(self) -> int:
        """How many connections the sites hold open now. By default: the sockets of this process (0 without /proc).

        Override it where the world itself opens connections while sites work: a proxy or a simulator in this process.
        """
        sockets = 0
        directory = Path("/proc/self/fd")
        for descriptor in os.listdir(directory) if directory.exists() else ():  # noqa: PTH208 - they come and go
            try:
                sockets += os.readlink(directory / descriptor).startswith("socket:")  # noqa: PTH115
            except OSError:
                continue
        return sockets

    def is_own_task(self, task: asyncio.Task[object]) -> bool:
        """Whether a task is the world's own (of a simulator, say), so that it may outlive a site."""
        return False

    # Switches

    async def lose_answers(self, calls: int) -> None:
        """The next so many requests that create or delete machines are carried out, and their answers never arrive.

        Count what goes over the wire and changes something. A connection that is cut is as good as a deadline.
        """
        _lacks("lose_answers")

    async def throttle(self, calls: int, retry_after_seconds: float | None) -> None:
        """The next so many requests that create machines are refused as too many; when to come again is said if given.

        Raises nothing; a cloud that cannot say when skips (``pytest.skip``) unless it is None.
        """
        _lacks("throttle")

    def quota_exhausted(self) -> AbstractAsyncContextManager[None]:
        """As long as it lasts there is quota for no further machine."""
        _lacks("quota_exhausted")

    def permission_denied(self) -> AbstractAsyncContextManager[None]:
        """As long as it lasts the credentials are good, and do not suffice to create machines."""
        _lacks("permission_denied")

    async def expire_credentials(self) -> None:
        """From now on the cloud refuses tokens and sessions that it gave out, and the credentials of earlier sites.

        Sites that are made from now on have good ones.
        """
        _lacks("expire_credentials")

    def unreachable(self) -> AbstractAsyncContextManager[None]:
        """As long as it lasts nobody answers: no connection is accepted, and those that are open are cut."""
        _lacks("unreachable")

    def silent(self) -> AbstractAsyncContextManager[None]:
        """As long as it lasts requests are taken, and never answered.

        The deadlines of sites are much shorter than :attr:`deadline_seconds` then: a world sets them so.
        """
        _lacks("silent")

    def events_lost(self) -> AbstractAsyncContextManager[None]:
        """What changes as long as it lasts is not told, in the way that it happens there.

        A watch is cut and cannot go on from where it was; a message is dropped; polls fail.
        """
        _lacks("events_lost")

    async def leftovers(self) -> Collection[str]:
        """What is kept there beside machines and their records, by whatever name: Secrets, templates, tokens.

        Of all installations and sites, and nothing that was there before the test.
        """
        _lacks("leftovers")

    def held(self) -> AbstractAsyncContextManager[None]:
        """As long as it lasts no machine goes on: what boots does not run, and what ends is not gone."""
        _lacks("held")

    async def finish_machines(self, count: int) -> None:
        """Add so many machines of the installation ``default`` that have ended, as the cloud keeps them."""
        _lacks("finish_machines")

    def cost(self) -> int:
        """What has been observed so far did cost so much: bytes received, say, or records that the cloud went through.

        Needed beside :meth:`finish_machines`.
        """
        _lacks("cost")

    async def fail_machine(self, machine: Machine) -> None:
        """Have a running machine fail, as machines do there."""
        _lacks("fail_machine")

    async def remove_machine(self, machine: Machine) -> None:
        """Have a machine vanish without our asking: evicted, or ended by somebody."""
        _lacks("remove_machine")

    def spoil(self, request: MachineRequest) -> MachineRequest:
        """A request that the cloud refuses at once, for itself alone, and will refuse for ever."""
        _lacks("spoil")

    def wrong_sites(self) -> Mapping[str, Callable[[], Site]]:
        """Sites with a wrong setting each, by a word that the error must have in it: the field that is wrong."""
        _lacks("wrong_sites")


MakeWorld = Callable[[], AbstractAsyncContextManager[World]]
