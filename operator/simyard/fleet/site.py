"""Runs one site: follows its machines, compares them with the Workers, and has the difference carried out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import NoReturn

from prometheus_client import Counter

from simyard.api.cloud_site import CloudSite
from simyard.api.quantities import cores_of, mebibytes_of
from simyard.api.worker import Worker
from simyard.build.bootstrap import bootstrap_document
from simyard.fleet.broker import Broker
from simyard.fleet.bulk import Bulk
from simyard.fleet.machines import MachineTable
from simyard.fleet.queue import KeyQueue
from simyard.fleet.registry import Registry, gone
from simyard.fleet.site_health import SiteHealth, pause_after
from simyard.fleet.workers import WorkerStatuses
from simyard.messaging.errors import MessagingError
from simyard.plan.machine import POWER, Step, machine_name, plan_machine
from simyard.plan.site import SiteObservation, count_machines
from simyard_sites.base import (
    Changed,
    ConflictError,
    ErrorScope,
    Gone,
    Machine,
    MachineNotFoundError,
    MachineRequest,
    MachineState,
    Outcome,
    Owner,
    Site,
    SiteError,
    SiteEvent,
    Snapshot,
    UnavailableError,
    UnknownOutcomeError,
)

log = logging.getLogger(__name__)

REQUESTS = Counter(
    "simyard_site_requests_total", "Items of bulk calls to a site, by outcome.", ["site", "call", "outcome"]
)
ORPHANS = Counter("simyard_site_orphans_total", "Machines found without a Worker, and removed.", ["site"])

SERVICE_WAIT_SECONDS = 30.0
BROKER_WAIT_SECONDS = 1.0
CONFIRM_SECONDS = 30.0
"""So long after a delete was accepted the site is asked whether the machine is still there."""


class SiteRunner:
    """One CloudSite whose provider could be made.

    ``changed`` is called when what the site's status says may be different, ``orphan_removed`` with a machine whose
    Worker nobody saw deleted.
    """

    def __init__(
        self,
        site: CloudSite,
        provider: Site,
        registry: Registry,
        statuses: WorkerStatuses,
        broker: Broker,
        *,
        changed: Callable[[], None],
        orphan_removed: Callable[[Machine], None],
    ) -> None:
        self.name = site.metadata.name
        self.machines = MachineTable()
        self.health = SiteHealth(provider, changed)
        self.bulk = Bulk(self._send, site.spec.limits)
        self.complete = False
        self._provider = provider
        self._provider_kind = site.spec.provider.member()[0]
        self._registry = registry
        self._statuses = statuses
        self._broker = broker
        self._changed = changed
        self._orphan_removed = orphan_removed
        self._attempts: dict[str, int] = {}
        self._lost: set[str] = set()
        self._suspects: set[str] = set()
        self._deleting: dict[str, float] = {}
        self._clock = asyncio.get_running_loop().time
        self._queue = KeyQueue(f"site-{self.name}", self._evaluate)

    def observation(self) -> SiteObservation:
        """What the site's status is made from."""
        desired = self._registry.workers.count("site", self.name)
        return self.health.observation(count_machines(self.machines.states), desired)

    def worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        """A Worker of the site was made, changed or deleted."""
        if (left := gone(old, new)) is not None:
            self._lost.discard(left.metadata.uid)
            self._attempts.pop(left.metadata.uid, None)
            self._queue.add(left.metadata.uid)
        if new is not None and (old is None or old.metadata.generation != new.metadata.generation):
            self._queue.add(new.metadata.uid)

    async def run(self) -> NoReturn:
        """Run until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow(), name=f"events of {self.name}")
                group.create_task(self.health.probe(), name=f"probe of {self.name}")
                group.create_task(self._queue.run(), name=f"machines of {self.name}")
                group.create_task(self.bulk.run(), name=f"requests to {self.name}")
        finally:
            self.complete = False
            await self._provider.aclose()
        raise AssertionError("the tasks do not end")

    # What the site tells

    async def _follow(self) -> NoReturn:
        failures = 0
        while True:
            events = self._provider.events()
            try:
                async for event in events:
                    failures = 0
                    self._take(event)
                raise UnavailableError("the site ended its stream of events")
            except SiteError as error:
                log.warning("site %s: %s", self.name, error)
                self.complete = False
                self.health.stream(error)
            finally:
                if isinstance(events, AsyncGenerator):
                    await events.aclose()
            failures += 1
            await asyncio.sleep(pause_after(failures))

    def _take(self, event: SiteEvent) -> None:
        if isinstance(event, Changed):
            self._take_machine(event.machine)
        elif isinstance(event, Gone):
            self._take_gone(event.id)
        elif isinstance(event, Snapshot):
            self._suspects.update(machine.id for machine in self.machines.absent(event.machines))
            for machine in event.machines:
                self._take_machine(machine)
            self.complete = True
            self.health.stream(None)
            for machine in self.machines:
                self._queue.add(machine.owner.worker_uid)
            for worker in self._registry.workers.by("site", self.name):
                self._queue.add(worker.metadata.uid)
        self._changed()

    def _take_machine(self, machine: Machine) -> None:
        self._suspects.discard(machine.id)
        old = self.machines.put(machine)
        if machine.state is MachineState.RUNNING and (old is None or old.state is not MachineState.RUNNING):
            self.health.booted(machine)
        uid = machine.owner.worker_uid
        worker = self._registry.worker(uid)
        if worker is not None:
            self._statuses.machine_changed(uid, machine)
        if old is None or plan_machine(worker, machine) is not Step.NOTHING:
            self._queue.add(uid)

    def _take_gone(self, machine_id: str) -> None:
        self._suspects.discard(machine_id)
        self._deleting.pop(machine_id, None)
        machine = self.machines.remove(machine_id)
        if machine is None:
            return
        uid = machine.owner.worker_uid
        worker = self._registry.worker(uid)
        if worker is not None and worker.metadata.deletion_timestamp is None and not self.machines.of_worker(uid):
            self._lost.add(uid)
            self._statuses.observe(uid, machine=None, lost=True)
        self._changed()

    # What is to be done

    async def _evaluate(self, uid: str) -> float | None:
        """Compare a Worker with its machine. Nothing is done while the machines are not all known."""
        if not self.complete:
            return None
        for machine in self.machines.of_worker(uid):
            if machine.id in self._suspects:
                await self._confirm(machine.id)
        machines = self.machines.of_worker(uid)
        worker = self._registry.worker(uid)
        if worker is None and machines and self._registry.worker_gone(uid) is None:
            owner = machines[0].owner
            await self._registry.look_for_worker(owner.namespace, owner.worker, uid)
            worker = self._registry.worker(uid)
            if worker is None:
                ORPHANS.labels(self.name).inc()
                self._orphan_removed(machines[0])
        for extra in machines[1:]:
            self.bulk.want(Step.DELETE, extra.id)
        return await self._carry_out(uid, worker, machines[0] if machines else None)

    async def _carry_out(self, uid: str, worker: Worker | None, machine: Machine | None) -> float | None:
        step = plan_machine(worker, machine)
        if worker is not None and machine is not None:
            self._statuses.machine_changed(uid, machine)
        if step is Step.DELETE and machine is not None:
            return await self._want_delete(machine)
        if step is Step.LOST and worker is not None and uid not in self._lost:
            if await self._confirm(worker.status.machine_id) is None:
                self._lost.add(uid)
                self._statuses.observe(uid, machine=None, lost=True)
        elif step is Step.CREATE and uid not in self._lost:
            self.bulk.want(step, uid)
        elif step in POWER and machine is not None:
            self.bulk.want(step, machine.id)
        return None

    async def _want_delete(self, machine: Machine) -> float | None:
        """Have it deleted, once; when that takes long, ask whether it is still there (an event may be lost)."""
        if machine.state is MachineState.TERMINATING:
            self._deleting.setdefault(machine.id, self._clock())
        accepted = self._deleting.get(machine.id)
        if accepted is None:
            self.bulk.want(Step.DELETE, machine.id)
            return None
        left = accepted + CONFIRM_SECONDS - self._clock()
        if left > 0:
            return left
        del self._deleting[machine.id]
        if await self._confirm(machine.id) is not None:
            self.bulk.want(Step.DELETE, machine.id)
        return None

    async def _confirm(self, machine_id: str) -> Machine | None:
        """Ask the site for one machine, and take over the answer."""
        async for outcome in self._provider.get([machine_id]):
            if outcome.machine is not None:
                self._take_machine(outcome.machine)
                return outcome.machine
            if not isinstance(outcome.error, MachineNotFoundError):
                raise outcome.error or UnavailableError(f"no answer for machine {machine_id}")
        self._take_gone(machine_id)
        return None

    # Requests

    async def _send(self, step: Step, keys: Sequence[str]) -> None:
        if step is Step.CREATE:
            await self._create(keys)
            return
        call = self._provider.delete(keys) if step is Step.DELETE else self._provider.act(keys, POWER[step])
        async for key, failure in self._outcomes(step, keys, call):
            self.bulk.done(step, key)
            machine = self.machines.get(key)
            if isinstance(failure, MachineNotFoundError):
                self._take_gone(key)
            elif machine is not None and failure is not None:
                self._queue.add(machine.owner.worker_uid, self._pause(failure, key, step))
            elif machine is not None and step is Step.DELETE:
                self._deleting[key] = self._clock()
                self._queue.add(machine.owner.worker_uid, CONFIRM_SECONDS)

    async def _create(self, uids: Sequence[str]) -> None:
        found = [worker for uid in uids if (worker := self._registry.worker(uid)) is not None]
        workers = [worker for worker in found if not self.machines.of_worker(worker.metadata.uid)]
        try:
            await self._broker.ensure_workers(workers)
        except MessagingError as error:
            log.warning("site %s: %d machines wait for the broker: %s", self.name, len(workers), error)
            for worker in workers:
                self._queue.add(worker.metadata.uid, BROKER_WAIT_SECONDS)
            return
        requests: dict[str, MachineRequest] = {}
        for worker in workers:
            if self._registry.worker(worker.metadata.uid) is None:
                continue
            if (request := self._request(worker)) is not None:
                requests[request.name] = request
            else:
                self._queue.add(worker.metadata.uid, SERVICE_WAIT_SECONDS)
        look = False
        async for name, failure in self._outcomes(
            Step.CREATE, list(requests), self._provider.create(list(requests.values()))
        ):
            uid = requests[name].owner.worker_uid
            self.bulk.done(Step.CREATE, uid)
            if failure is None:
                self._attempts.pop(uid, None)
                self.health.served()
            elif failure.retryable or failure.scope is ErrorScope.SITE:
                look = look or isinstance(failure, UnknownOutcomeError)
                self._queue.add(uid, self._pause(failure, uid, Step.CREATE))
            else:
                self._statuses.observe(uid, refusal=f"{failure.reason}: {failure}")
        if look:
            await self._look()

    async def _look(self) -> None:
        """After answers were lost: see what is there, before anything is asked for again."""
        try:
            for machine in await self._provider.list_owned():
                self._take_machine(machine)
        except SiteError as error:
            log.warning("site %s: %s", self.name, error)

    async def _outcomes(
        self, step: Step, keys: Sequence[str], call: AsyncIterator[Outcome]
    ) -> AsyncIterator[tuple[str, SiteError | None]]:
        """Each key, and why it failed (None: it did not), be it alone, with the whole call, or without an answer."""
        left = dict.fromkeys(keys)
        failure: SiteError = UnknownOutcomeError("the site did not answer for it")
        try:
            async for outcome in call:
                left.pop(outcome.key, None)
                if outcome.machine is not None:
                    self._take_machine(outcome.machine)
                REQUESTS.labels(self.name, step.name.lower(), outcome.error.reason if outcome.error else "OK").inc()
                yield outcome.key, outcome.error
        except SiteError as error:
            log.warning("site %s: %s of %d machines: %s", self.name, step.name.lower(), len(keys), error)
            failure = error
        for key in left:
            REQUESTS.labels(self.name, step.name.lower(), failure.reason).inc()
            yield key, failure

    def _request(self, worker: Worker) -> MachineRequest | None:
        """What to ask the site for; None while the service is not there or makes no sense."""
        service = self._registry.service_of(worker)
        if service is None or service.problem:
            return None
        metadata, spec = worker.metadata, service.service.spec
        owner = metadata.controller
        pool = owner.name if owner is not None else ""
        address = self._broker.address_for(worker)
        return MachineRequest(
            name=machine_name(metadata.name, metadata.uid),
            owner=Owner(metadata.namespace, metadata.name, metadata.uid, pool),
            bootstrap=bootstrap_document(worker, pool, service.interface, spec.connector, address),
            cores=cores_of(spec.resources.cpu),
            memory_mib=mebibytes_of(spec.resources.memory),
            image=spec.images.to_json().get(self._provider_kind, ""),
        )

    def _pause(self, failure: SiteError, key: str, step: Step) -> float:
        """After how many seconds to try again; a failure of the whole site holds up all requests of that kind."""
        if failure.scope is ErrorScope.SITE:
            seconds = self.health.refused(failure)
            self.bulk.pause(step, seconds)
            return seconds
        attempts = 1 if isinstance(failure, ConflictError) else self._attempts.get(key, 0) + 1
        self._attempts[key] = attempts
        return failure.retry_after_seconds or pause_after(attempts)
