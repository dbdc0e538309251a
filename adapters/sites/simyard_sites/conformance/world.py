# SPDX-License-Identifier: Apache-2.0
"""Defines the world that an author provides to the suite: a cloud for each test, and switches for its faults."""

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
    pytest.skip(f"this world does not have the switch {switch}")


class World:
    """A cloud for one test, without machines of Simyard; ``make_world`` creates and removes it.

    A provider defines a subclass. It must define :meth:`site`. It overrides :meth:`request` and :meth:`connections` if
    the defaults do not fit, and as many switches as the cloud, its simulator or a proxy can offer. A test without its
    switch is skipped, and the reason names the switch. A switch may also call ``pytest.skip`` itself.

    Attributes:
        deadline_seconds: The time in which a machine must run or be gone, and in which a site must report a lost event.
        burst: The number of machines in the burst test.
        kept_connections: The number of connections that a site may keep after cancelled calls.
    """

    deadline_seconds = 120.0
    burst = 500
    kept_connections = 32

    def site(self, installation: str = "default", name: str = "site") -> Site:
        """Create a site object for this cloud, as after a restart of the control plane; the suite closes it.

        ``name`` is the name of the CloudSite. Sites of another installation or name use the same account, namespace and
        settings. On a cloud that several tests share, make installations unique.
        """
        raise NotImplementedError

    def request(self, request: MachineRequest) -> MachineRequest:
        """Return the request with the fields that this cloud requires, such as an image (``dataclasses.replace``)."""
        return request

    def connections(self) -> int:
        """Return the number of connections that the sites hold open.

        The default is the number of this process's sockets (0 without /proc). Override it if the world itself opens
        connections in this process, for a proxy or a simulator.
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
        """Return True if a task belongs to the world (for example to a simulator) and may outlive a site."""
        return False

    # Switches

    async def lose_answers(self, calls: int) -> None:
        """Carry out the next ``calls`` requests that create or delete machines, but lose their answers.

        Count only requests that create or delete machines. To lose an answer, you may close the connection or let the
        request time out.
        """
        _lacks("lose_answers")

    async def throttle(self, calls: int, retry_after_seconds: float | None) -> None:
        """Refuse the next ``calls`` requests that create machines as too many, with a delay if given.

        If the cloud cannot send a delay, call ``pytest.skip``, unless the delay is None.
        """
        _lacks("throttle")

    def quota_exhausted(self) -> AbstractAsyncContextManager[None]:
        """Refuse new machines because of a quota while the block runs."""
        _lacks("quota_exhausted")

    def permission_denied(self) -> AbstractAsyncContextManager[None]:
        """Deny the permission to create machines while the block runs; the credentials stay valid."""
        _lacks("permission_denied")

    async def expire_credentials(self) -> None:
        """Refuse all tokens and sessions from now on, and the credentials of existing sites.

        Sites that are created later have valid credentials.
        """
        _lacks("expire_credentials")

    def unreachable(self) -> AbstractAsyncContextManager[None]:
        """Refuse every new connection and close the open ones while the block runs."""
        _lacks("unreachable")

    def silent(self) -> AbstractAsyncContextManager[None]:
        """Accept requests but never answer them while the block runs.

        The world must set timeouts for its sites that are much shorter than :attr:`deadline_seconds`.
        """
        _lacks("silent")

    def events_lost(self) -> AbstractAsyncContextManager[None]:
        """Let the changes during the block reach no stream of events.

        Do what happens at this cloud: end a watch that cannot be resumed, drop messages, or let polls fail.
        """
        _lacks("events_lost")

    async def leftovers(self) -> Collection[str]:
        """Return the names of all objects that sites store in addition to machines: Secrets, templates, tokens.

        Include all installations and sites, but no object from before the test.
        """
        _lacks("leftovers")

    def held(self) -> AbstractAsyncContextManager[None]:
        """Stop the progress of machines while the block runs: none begins to run, and none is gone."""
        _lacks("held")

    async def finish_machines(self, count: int) -> None:
        """Add records of ``count`` ended machines of the installation ``default`` to the cloud."""
        _lacks("finish_machines")

    def cost(self) -> int:
        """Return the cost of all requests so far, such as the number of bytes or records that the cloud has read.

        The test that uses :meth:`finish_machines` needs this method.
        """
        _lacks("cost")

    async def fail_machine(self, machine: Machine) -> None:
        """Make a running machine fail in the way in which machines fail at this cloud."""
        _lacks("fail_machine")

    async def remove_machine(self, machine: Machine) -> None:
        """Make a machine disappear without a request of the site, as after an eviction."""
        _lacks("remove_machine")

    def spoil(self, request: MachineRequest) -> MachineRequest:
        """Return a request that the cloud always refuses at once, without an effect on other items of the call."""
        _lacks("spoil")

    def wrong_sites(self) -> Mapping[str, Callable[[], Site]]:
        """Return factories of sites with one wrong setting each, by a word that the error must contain: the field."""
        _lacks("wrong_sites")


MakeWorld = Callable[[], AbstractAsyncContextManager[World]]
