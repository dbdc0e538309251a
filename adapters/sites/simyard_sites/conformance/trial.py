# SPDX-License-Identifier: Apache-2.0
"""Calls the sites of a cloud for a test, and checks every answer."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

from simyard_adapter.bootstrap import Bootstrap, BrokerAddress
from simyard_adapter.declarations import Interface
from simyard_sites import base
from simyard_sites.base import (
    ErrorScope,
    Machine,
    MachineRequest,
    MachineState,
    Outcome,
    Owner,
    PowerAction,
    Site,
    SiteError,
    Stage,
)
from simyard_sites.conformance.observer import Observer
from simyard_sites.conformance.world import World

SETTLING_SECONDS = 60.0
"""The time within which all tasks and connections of a closed site must end."""
_POLL_SECONDS = 0.01
_STAGES = (Stage.PENDING, Stage.PROLOG, Stage.BOOT, Stage.RUNNING)
_REASON = re.compile(r"([A-Z][A-Za-z0-9]*)?")
_SCOPES = {
    base.UnauthenticatedError: {ErrorScope.SITE},
    base.MachineNotFoundError: {ErrorScope.ITEM},
    base.ConflictError: {ErrorScope.ITEM},
    base.ThrottledError: {ErrorScope.SITE},
    base.UnavailableError: {ErrorScope.SITE},
}
_ERRORS = {kind for kind in vars(base).values() if isinstance(kind, type) and issubclass(kind, SiteError)} - {SiteError}


class Trial:
    """The helper of one test: it creates the sites of a world, calls them and checks their answers.

    Tests use short names, from which the helper makes unique names of machines. It checks every machine, outcome and
    error: it has the right form, and contains no part of the secret in the bootstrap document.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.secret = uuid.uuid4().hex
        self._secret_forms = [self.secret, *_base64_forms(self.secret)]
        self._requests: dict[str, MachineRequest] = {}
        self._owners: dict[str, Owner] = {}
        self._sites: list[Site] = []
        self._observers: list[Observer] = []
        self._tasks = asyncio.all_tasks()
        self._connections = world.connections()

    # Calls

    def site(self, installation: str = "default", name: str = "site") -> Site:
        """Create a new site object, which the trial closes when the test ends."""
        site = self.world.site(installation, name)
        self._sites.append(site)
        return site

    def request(self, name: str) -> MachineRequest:
        """Return the request for a machine: the same request each time."""
        if name not in self._requests:
            uid = str(uuid.uuid4())
            self.put_request(name, Owner("conformance", name, uid, "pool"))
        return self._requests[name]

    def put_request(self, name: str, owner: Owner, **asked: Any) -> MachineRequest:
        """Replace the request for the machine with this name."""
        document = self._document(owner)
        request = MachineRequest(f"{owner.worker}-{owner.worker_uid[:8]}", owner, document, **asked)
        self._requests[name] = self.world.request(request)
        self._owners[request.name] = owner
        return self._requests[name]

    def spoil(self, name: str) -> None:
        """Replace the request for the machine with this name by an impossible one."""
        self._requests[name] = self.world.spoil(self.request(name))

    def name(self, name: str) -> str:
        """Return the machine's name at the site."""
        return self.request(name).name

    async def create(self, site: Site, *names: str) -> list[Outcome]:
        """Create machines; return the outcomes in the order of the names.

        An error of the whole call counts for each name without an outcome.
        """
        requests = [self.request(name) for name in names]
        outcomes = await self._collect(site.create(requests), [request.name for request in requests])
        for request, outcome in zip(requests, outcomes, strict=True):
            assert (outcome.machine is None) != (outcome.error is None), (
                f"not exactly one of machine and error: {outcome}"
            )
            assert outcome.machine is None or outcome.machine.name == request.name
        ids = {
            request.name: outcome.machine.id
            for request, outcome in zip(requests, outcomes, strict=True)
            if outcome.machine
        }
        assert len(set(ids.values())) == len(ids), f"two machines have the same id: {ids}"
        return outcomes

    async def created(self, site: Site, *names: str) -> list[Machine]:
        """Create machines and assert success."""
        outcomes = await self.create(site, *names)
        return [outcome.machine for outcome in outcomes if succeeded(outcome) and outcome.machine]

    async def delete(self, site: Site, *ids: str) -> list[Outcome]:
        """Delete machines; return the outcomes in the order of the ids."""
        return await self._collect(site.delete(ids), ids)

    async def get(self, site: Site, *ids: str) -> list[Outcome]:
        """Get machines; return the outcomes in the order of the ids."""
        outcomes = await self._collect(site.get(ids), ids)
        for outcome in outcomes:
            assert (outcome.machine is None) != (outcome.error is None), (
                f"not exactly one of machine and error: {outcome}"
            )
            assert outcome.machine is None or outcome.machine.id == outcome.key
        return outcomes

    async def act(self, site: Site, action: PowerAction, *ids: str) -> list[Outcome]:
        """Apply a power action; return the outcomes in the order of the ids."""
        return await self._collect(site.act(ids, action), ids)

    async def owned(self, site: Site) -> dict[str, Machine]:
        """Return all machines of the site by their names, except ending ones."""
        async with asyncio.timeout(self.world.deadline_seconds):
            machines = await site.list_owned()
        for machine in machines:
            self.check(machine)
        names = [machine.name for machine in machines if machine.state is not MachineState.TERMINATING]
        assert len(names) == len(set(names)), f"two machines have the same name: {sorted(names)}"
        ids = [machine.id for machine in machines]
        assert len(ids) == len(set(ids)), f"two machines have the same id: {sorted(ids)}"
        return {machine.name: machine for machine in machines if machine.state is not MachineState.TERMINATING}

    def observe(self, site: Site) -> Observer:
        """Follow a site's events until the test ends."""
        observer = Observer(site, self.check, self.world.deadline_seconds)
        self._observers.append(observer)
        return observer

    async def running(self, site: Site, *names: str) -> list[Machine]:
        """Create machines and wait until they run."""
        await self.created(site, *names)
        observer = self.observe(site)
        wanted = [self.name(name) for name in names]

        def run(machines: dict[str, Machine]) -> bool:
            return all(name in machines and machines[name].state is MachineState.RUNNING for name in wanted)

        machines = await observer.until(run, f"{', '.join(names)} run")
        return [machines[name] for name in wanted]

    async def until(self, wanted: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds, for at most :data:`SETTLING_SECONDS` or the deadline of the world."""
        seconds = min(SETTLING_SECONDS, self.world.deadline_seconds)
        try:
            async with asyncio.timeout(seconds):
                while not wanted():  # noqa: ASYNC110 - tasks and connections of others send no events
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise AssertionError(f"waited {seconds} s until {what}") from None

    # Checks

    def check(self, seen: Machine | SiteError) -> None:
        """Check the properties of every machine and every error."""
        self.check_text(f"{seen!r} {seen}")
        if isinstance(seen, SiteError):
            _check_error(seen)
            return
        owner = self._owners.get(seen.name, seen.owner)
        assert seen.owner == owner, f"{seen.owner} is not {owner}"
        assert isinstance(seen.id, str) and seen.id, f"no id: {seen}"
        assert isinstance(seen.state, MachineState)
        assert _REASON.fullmatch(seen.reason), f"not a CamelCase word: {seen.reason!r}"
        assert seen.reason or seen.state is not MachineState.FAILED, "a failed machine has no reason"
        times = [seen.entered[stage] for stage in _STAGES if stage in seen.entered]
        assert set(seen.entered) <= set(_STAGES), f"stages that a site cannot know: {set(seen.entered) - set(_STAGES)}"
        assert times == sorted(times), f"the stages are not in order: {seen.entered}"

    def check_text(self, text: str) -> None:
        """Check that a text contains no part of the document's secret, in plain form or encoded."""
        assert not any(form in text for form in self._secret_forms), (
            "the text contains the bootstrap document's password"
        )

    def tasks(self) -> set[asyncio.Task[Any]]:
        """Return the running tasks that started after the trial began, without those of the world and of observers."""
        found = asyncio.all_tasks() - self._tasks
        own = {task for task in found if task.get_name() == "observer" or self.world.is_own_task(task)}
        current = asyncio.current_task()
        return found - own - ({current} if current else set())

    def connections(self) -> int:
        """Return the number of connections that were opened since the trial began."""
        return self.world.connections() - self._connections

    async def finish(self, log: Iterable[logging.LogRecord]) -> None:
        """Delete all machines, then check for leftovers and for secrets in the log.

        The method deletes the machines because the cloud can be one that exists longer than the test.
        """
        observers, self._observers = self._observers, []
        sites, self._sites = self._sites, []
        try:
            async with AsyncExitStack() as stack:  # Each site is closed, even if another one fails.
                for observer in observers:
                    stack.push_async_callback(observer.aclose)
            for site in sites:
                await self._tidy(site)
        finally:
            async with asyncio.timeout(self.world.deadline_seconds):
                for site in sites:
                    self.check_text(repr(site))
                    await site.aclose()
                    await site.aclose()
        with suppress(AssertionError):
            await self.until(lambda: not self.tasks() and self.connections() <= 0, "nothing is left")
        assert not self.tasks(), f"a closed site has left tasks: {self.tasks()}"
        assert self.connections() <= 0, f"a closed site has left {self.connections()} connections"
        for record in log:
            self.check_text(logging.Formatter().format(record))

    async def _tidy(self, site: Site) -> None:
        with suppress(SiteError, TimeoutError):
            async with asyncio.timeout(self.world.deadline_seconds):
                machines = await site.list_owned()
                ids = [machine.id for machine in machines if machine.state is not MachineState.TERMINATING]
                async for _ in site.delete(ids):
                    pass

    async def _collect(self, call: AsyncIterator[Outcome], keys: Sequence[str]) -> list[Outcome]:
        found: dict[str, Outcome] = {}
        failure: SiteError | None = None
        try:
            async with asyncio.timeout(self.world.deadline_seconds):
                async for outcome in call:
                    assert outcome.key in keys, f"{outcome.key!r} was not requested"
                    assert outcome.key not in found, f"{outcome.key!r} has two outcomes"
                    found[outcome.key] = outcome
        except SiteError as error:
            failure = error
            self.check(error)
        for outcome in found.values():
            self.check_text(repr(outcome))
            for seen in (outcome.machine, outcome.error):
                if seen is not None:
                    self.check(seen)
        missing = [key for key in keys if key not in found]
        assert failure or not missing, f"no outcome for {missing}"
        return [found.get(key) or Outcome(key, error=failure) for key in keys]

    def _document(self, owner: Owner) -> bytes:
        broker = BrokerAddress("broker.example", 5672, "simyard", "pool", self.secret)
        document = Bootstrap(
            namespace=owner.namespace,
            worker=owner.worker,
            worker_uid=owner.worker_uid,
            service="service",
            pool=owner.pool,
            broker=broker,
            interface=Interface(),
            connector={"commands": {}},
        )
        return document.to_bytes()


def _base64_forms(text: str) -> list[str]:
    """Return the Base64 texts that contain this text, one for each possible offset."""
    return [base64.b64encode(b"?" * before + text.encode()).decode()[4:-4] for before in range(3)]


def succeeded(outcome: Outcome) -> bool:
    """Assert that the outcome is a success."""
    assert outcome.error is None, f"{outcome.key}: {outcome.error!r}"
    return True


def failed_with(outcome: Outcome, *kinds: type[SiteError]) -> SiteError:
    """Assert that the outcome is one of these errors, and return it."""
    assert isinstance(outcome.error, kinds), f"{outcome.key}: {outcome.error!r} is none of {kinds}"
    return outcome.error


def _check_error(error: SiteError) -> None:
    kind = type(error)
    assert any(issubclass(kind, known) for known in _ERRORS), f"{kind.__name__} is not an error of the interface"
    assert str(error), f"a {kind.__name__} has no message"
    for known, scopes in _SCOPES.items():
        assert not isinstance(error, known) or error.scope in scopes, f"{error!r} has scope {error.scope}"
    if error.retry_after_seconds is not None:
        assert error.retryable and error.retry_after_seconds >= 0, f"{error!r} cannot be retried"
