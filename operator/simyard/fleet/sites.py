"""All sites: a runner for each CloudSite whose provider is installed, and the CloudSite's status."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from typing import Any, NoReturn

from prometheus_client import Gauge

from simyard.api.cloud_site import CloudSite, SiteWorkers
from simyard.api.names import CLOUD_SITES, WORKER_POOLS, Reason
from simyard.api.worker import Worker
from simyard.fleet.broker import Broker
from simyard.fleet.bulk import forget_limits
from simyard.fleet.evacuations import Evacuations
from simyard.fleet.guarded import Guarded, defect
from simyard.fleet.master_key import SECRETS
from simyard.fleet.metering import Metering
from simyard.fleet.queue import KeyQueue
from simyard.fleet.recorder import Recorder
from simyard.fleet.registry import Registry, now
from simyard.fleet.site import SiteRunner
from simyard.fleet.site_health import forget_breaker
from simyard.fleet.statuses import write_status
from simyard.fleet.workers import WorkerStatuses
from simyard.plan.placement import SiteState
from simyard.plan.site import SiteObservation, is_abandoned, is_ready, left_behind, plan_site, turned
from simyard_sites.base import Machine, MachineState, Site, SiteConfig, SiteError
from simyard_sites.kubernetes.errors import NotFoundError

log = logging.getLogger(__name__)

MACHINES = Gauge("simyard_machines", "Machines at a site, by state.", ["site", "state"])
ENTRY_POINTS = "simyard.sites"
STATUS_SPACING_SECONDS = 1.0
SECRET_CHECK_SECONDS = 60.0
DEFECT_PAUSE_SECONDS = 10.0


class SetupError(Exception):
    """A provider cannot be made; ``reason`` is that of the condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(slots=True)
class _Running:
    """A runner with what it was made from."""

    runner: SiteRunner
    config: SiteConfig
    task: asyncio.Task[None]


class Sites:
    """Keeps a runner per CloudSite; ``installation`` tells our machines from those of other installations."""

    def __init__(
        self,
        registry: Registry,
        statuses: WorkerStatuses,
        broker: Broker,
        recorder: Recorder,
        metering: Metering,
        *,
        namespace: str,
        installation: str,
    ) -> None:
        self._registry = registry
        self._statuses = statuses
        self._broker = broker
        self._recorder = recorder
        self._metering = metering
        self._evacuations = Evacuations(registry, recorder)
        self._namespace = namespace
        self._installation = installation
        self._running: dict[str, _Running] = {}
        self._problems: dict[str, SetupError] = {}
        self._group: asyncio.TaskGroup | None = None
        self._queue = KeyQueue("site", self._reconcile, spacing_seconds=STATUS_SPACING_SECONDS)
        self._changed = asyncio.Event()
        registry.sites.subscribe(self._site_changed)
        registry.workers.subscribe(self._worker_changed)

    async def run(self) -> NoReturn:
        """Run all sites until cancelled."""
        async with asyncio.TaskGroup() as self._group:
            self._group.create_task(self._evacuations.run(), name="evacuations")
            await self._queue.run()
        raise AssertionError("the queue does not end")

    def states(self, reserved: Mapping[str, int]) -> dict[str, SiteState]:
        """Every CloudSite as placement sees it; ``reserved``: Workers of each that are being made at this moment."""
        return {site.metadata.name: self._state(site, reserved) for site in self._registry.sites}

    def machines_of_pool(self, namespace: str, pool: str) -> dict[str, int | None]:
        """Machines of a pool by site, where there are any or (None) where that cannot be said yet.

        A site that is not Ready says nothing, and nobody waits for it: what is left there without a Worker is removed
        when it is back, as any orphan.
        """
        counts: dict[str, int | None] = {}
        for site in self._registry.sites:
            name = site.metadata.name
            running = self._running.get(name)
            if running is not None and running.runner.complete:
                if count := running.runner.machines.count_of_pool(namespace, pool):
                    counts[name] = count
            elif is_ready(site):
                counts[name] = None
        return counts

    async def emptied(self, name: str) -> None:
        """Wait until no Worker and no machine is left at a CloudSite, or until it is abandoned without any Worker."""
        while (site := self._registry.sites.get("", name)) is not None and self._left_at(site):
            if is_abandoned(site) and not self._registry.workers.count("site", name):
                running = self._running.get(name)
                note = left_behind(running.runner.machines if running is not None else ())
                self._recorder.emit(CLOUD_SITES, site.metadata, Reason.SITE_ABANDONED, note, warning=True)
                return
            self._changed.clear()
            await self._changed.wait()
        await self._clear(name)

    async def _clear(self, name: str) -> None:
        """Have a site that can be reached remove what it keeps beside machines."""
        running = self._running.get(name)
        if running is None or not running.runner.complete:
            return
        try:
            await running.runner.clear()
        except SiteError as error:
            if error.retryable:
                raise
            log.warning("site %s: what it kept beside machines is left there: %s", name, error)

    def _left_at(self, site: CloudSite) -> bool:
        """Whether Workers or machines may be left at a site."""
        running = self._running.get(site.metadata.name)
        known = running is not None and running.runner.complete
        machines = len(running.runner.machines) if running is not None else 0
        never_reached = not site.status.version
        return (
            self._registry.workers.count("site", site.metadata.name) > 0 or machines > 0 or not (known or never_reached)
        )

    def _state(self, site: CloudSite, reserved: Mapping[str, int]) -> SiteState:
        name = site.metadata.name
        workers = self._registry.workers.count("site", name) + reserved.get(name, 0)
        running = self._running.get(name)
        if running is None:
            return SiteState(site, workers)
        health = running.runner.health
        return SiteState(
            site, workers, health.exhausted_seconds > 0, health.boot_seconds, health.capacity, health.full_at
        )

    def _site_changed(self, old: CloudSite | None, new: CloudSite | None) -> None:
        item = new or old
        if item is not None and (
            old is None
            or new is None
            or old.metadata.generation != new.metadata.generation
            or old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
            or is_abandoned(old) != is_abandoned(new)
        ):
            self._queue.add(item.metadata.name)

    def _worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        worker = new or old
        if worker is None:
            return
        running = self._running.get(worker.spec.site)
        if running is not None:
            running.runner.worker_changed(old, new)
        if old is None or new is None:
            self._queue.add(worker.spec.site, STATUS_SPACING_SECONDS)

    async def _reconcile(self, name: str) -> float | None:
        self._changed.set()
        site = self._registry.sites.get("", name)
        if site is None:
            await self._stop(name)
            self._problems.pop(name, None)
            self._queue.forget(name)
            return None
        try:
            await self._keep_running(site)
            self._problems.pop(name, None)
        except SetupError as error:
            await self._stop(name)
            self._problems[name] = error
        await self._write(site)
        waits = SECRET_CHECK_SECONDS if _secret_name(site) or name in self._problems else None
        running = self._running.get(name)
        exhausted = running.runner.health.exhausted_seconds if running is not None else 0.0
        return min(exhausted, waits or exhausted) if exhausted else waits

    async def _keep_running(self, site: CloudSite) -> None:
        """Have a runner that is made from what the CloudSite and its Secret say now."""
        name = site.metadata.name
        config = await self._config(site)
        running = self._running.get(name)
        if running is not None and running.config == config and not running.task.done():
            running.runner.adjust(site.spec)
            return
        await self._stop(name)
        runner = SiteRunner(
            site,
            Guarded(name, make_provider(site, config)),
            self._registry,
            self._statuses,
            self._broker,
            self._metering.site(name),
            changed=lambda: self._queue.add(name),
            orphan_removed=partial(self._orphan_removed, name),
            evacuate=self._evacuations.note,
        )
        if self._group is None:
            raise AssertionError("sites are reconciled by run() only")
        self._running[name] = _Running(
            runner, config, self._group.create_task(self._guard(runner), name=f"site {name}")
        )

    async def _guard(self, runner: SiteRunner) -> None:
        """A defect in one site must not end the others: after a pause it gets a new runner, with a new provider."""
        try:
            await runner.run()
        except Exception:
            log.exception("site %s: this is a defect", runner.name)
        await asyncio.sleep(DEFECT_PAUSE_SECONDS)
        self._queue.add(runner.name)

    async def _stop(self, name: str) -> None:
        running = self._running.pop(name, None)
        if running is not None:
            running.task.cancel()
            await asyncio.wait([running.task])
            _forget_gauges(name)

    async def _write(self, site: CloudSite) -> None:
        name = site.metadata.name
        running, problem = self._running.get(name), self._problems.get(name)
        if problem is not None or running is None:
            desired = self._registry.workers.count("site", name)
            setup = (problem.reason, str(problem)) if problem is not None else None
            seen = SiteObservation(SiteWorkers(), desired, setup_problem=setup)
        else:
            seen = running.runner.observation()
            for state, count in running.runner.machines.states.items():
                MACHINES.labels(name, state.value).set(count)
        status = plan_site(site, seen, now())
        written = await write_status(self._registry.client, self._registry.sites, site.metadata, site.status, status)
        if written and (turn := turned(site.status, status)) is not None:
            self._recorder.emit(CLOUD_SITES, site.metadata, turn.reason, turn.note, warning=turn.warning)

    async def _config(self, site: CloudSite) -> SiteConfig:
        _, member = site.spec.provider.member()
        secret = _secret_name(site)
        credentials: Mapping[str, str] = {}
        if secret:
            try:
                raw = await self._registry.client.get(SECRETS, secret, self._namespace)
            except NotFoundError:
                message = f"Secret {self._namespace}/{secret} does not exist"
                raise SetupError(Reason.CREDENTIALS_NOT_FOUND, message) from None
            credentials = {key: base64.b64decode(value).decode() for key, value in (raw.get("data") or {}).items()}
        kubeconfig = self._registry.client.kubeconfig
        return SiteConfig(site.metadata.name, member.to_json(), credentials, self._installation, kubeconfig)

    def _orphan_removed(self, name: str, machine: Machine) -> None:
        log.warning("machine %s (%s) has no Worker and is removed", machine.id, machine.name)
        note = f"machine {machine.name} had no Worker and was removed"
        site = self._registry.sites.get("", name)
        if site is not None:
            self._recorder.emit(CLOUD_SITES, site.metadata, Reason.ORPHAN_REMOVED, note, warning=True)
        pool = self._registry.pools.get(machine.owner.namespace, machine.owner.pool)
        if pool is not None:
            self._recorder.emit(WORKER_POOLS, pool.metadata, Reason.ORPHAN_REMOVED, note, warning=True)


def _forget_gauges(name: str) -> None:
    """What they said was true of a runner that has ended."""
    forget_breaker(name)
    forget_limits(name)
    for state in MachineState:
        with contextlib.suppress(KeyError):
            MACHINES.remove(name, state.value)


def make_provider(site: CloudSite, config: SiteConfig) -> Site:
    """Make what a CloudSite names.

    Raises:
        SetupError: it is not installed, or its settings cannot be used.
    """
    kind = site.spec.provider.entry_point
    found = [entry for entry in entry_points(group=ENTRY_POINTS) if entry.name == kind]
    if not found:
        raise SetupError(Reason.PROVIDER_NOT_INSTALLED, f"no installed package offers the provider {kind}")
    try:
        provider: Site = found[0].load()(config)
    except ImportError as error:
        raise SetupError(Reason.PROVIDER_NOT_INSTALLED, f"the provider {kind} cannot be loaded: {error}") from error
    except SiteError as error:
        raise SetupError(error.reason, str(error)) from error
    except Exception as error:  # noqa: BLE001 - whatever a provider raises
        told = defect(config.name, "the factory", error)
        raise SetupError(told.reason, str(told)) from None
    return provider


def _secret_name(site: CloudSite) -> str:
    """The Secret that the provider's member refers to, if it does."""
    _, member = site.spec.provider.member()
    references: dict[str, Any] = member.to_json()
    for key in ("credentialsSecretRef", "kubeconfigSecretRef"):
        if isinstance(reference := references.get(key), dict):
            return str(reference["name"])
    return ""
