# SPDX-License-Identifier: Apache-2.0
"""Reconciles CloudSites: starts a runner for each CloudSite whose provider can be created, and writes its status."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

from prometheus_client import Gauge

from simyard.api.cloud_site import CloudSite, SiteWorkers
from simyard.api.names import CLOUD_SITES, WORKER_POOLS, Reason
from simyard.api.worker import Worker
from simyard.fleet.broker.master_key import SECRETS
from simyard.fleet.broker.provisioning import Broker
from simyard.fleet.metering import Metering
from simyard.fleet.recorder import Recorder
from simyard.fleet.registry import Registry, get_time
from simyard.fleet.sites.batch_queue import forget_limits
from simyard.fleet.sites.context import SiteContext
from simyard.fleet.sites.evacuations import Evacuations
from simyard.fleet.sites.guarded import GuardedSite
from simyard.fleet.sites.health import forget_breaker
from simyard.fleet.sites.providers import MakeProvider, SetupError, make_provider
from simyard.fleet.sites.runner import SiteRunner
from simyard.fleet.status_writes import write_status
from simyard.fleet.timing import PRODUCTION, Timing
from simyard.fleet.work_queue import KeyQueue
from simyard.fleet.worker_statuses import WorkerStatuses
from simyard.plan.placement import SiteState
from simyard.plan.platform import PlatformProblem
from simyard.plan.site import SiteObservation, describe_left_behind, find_turn, is_abandoned, is_ready, plan_site
from simyard_sites.base import Machine, MachineState, SiteConfig, SiteError
from simyard_sites.kubernetes.errors import NotFoundError

log = logging.getLogger(__name__)

MACHINES = Gauge("simyard_machines", "Machines at a site, by state.", ["site", "state"])
SECRET_CHECK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SitesSettings:
    """The settings of all sites.

    Attributes:
        namespace: the platform's own namespace, which contains the Secrets of the providers.
        installation: name that distinguishes this installation's machines at a site from the machines of other
            installations.
        make_provider: function that creates the provider of a CloudSite; tests inject another one.
        timing: the waiting times of the operator.
    """

    namespace: str
    installation: str
    make_provider: MakeProvider = make_provider
    timing: Timing = PRODUCTION


@dataclass(slots=True)
class _Running:
    """A runner and its task, with the configuration from which its provider was created."""

    runner: SiteRunner
    config: SiteConfig
    task: asyncio.Task[None]


class Sites:
    """The runners of all CloudSites."""

    def __init__(
        self,
        registry: Registry,
        statuses: WorkerStatuses,
        broker: Broker,
        recorder: Recorder,
        metering: Metering,
        settings: SitesSettings,
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._statuses = statuses
        self._broker = broker
        self._recorder = recorder
        self._metering = metering
        self._evacuations = Evacuations(registry, recorder)
        self._running: dict[str, _Running] = {}
        self._problems: dict[str, SetupError] = {}
        self._platform: PlatformProblem | None = None
        self._group: asyncio.TaskGroup | None = None
        self._queue = KeyQueue("site", self._reconcile, spacing_seconds=settings.timing.status_spacing_seconds)
        self._changed = asyncio.Event()

    async def run(self) -> NoReturn:
        """Run all sites until cancelled."""
        async with asyncio.TaskGroup() as self._group:
            self._group.create_task(self._evacuations.run(), name="evacuations")
            await self._queue.run()
        raise AssertionError("the queue does not end")

    def platform_changed(self, problem: PlatformProblem | None) -> None:
        """Report a problem of the platform, or its end (None), in the status of every CloudSite."""
        self._platform = problem
        for site in self._registry.sites:
            self._queue.add(site.metadata.name)

    def list_states(self, reserved: Mapping[str, int]) -> dict[str, SiteState]:
        """Return the state of every CloudSite for placement, by name.

        ``reserved`` has the numbers of Workers that plans create and that do not exist yet, by site.
        """
        return {site.metadata.name: self._state(site, reserved) for site in self._registry.sites}

    def count_machines_of_pool(self, namespace: str, pool: str) -> dict[str, int | None]:
        """Return the number of machines of a pool by site; None for a site some of whose machines are unknown.

        The result leaves out a site with unknown machines that is not Ready, because the deletion of the pool must not
        wait for it. When the site is back, the operator deletes the remaining machines as orphans.
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

    async def wait_until_emptied(self, name: str) -> None:
        """Wait until a CloudSite has no Workers and no machines, or is abandoned and has no Workers."""
        while (site := self._registry.sites.get("", name)) is not None and self._left_at(site):
            if is_abandoned(site) and not self._registry.workers.count("site", name):
                running = self._running.get(name)
                note = describe_left_behind(running.runner.machines if running is not None else ())
                self._recorder.emit(CLOUD_SITES, site.metadata, Reason.SITE_ABANDONED, note, warning=True)
                return
            self._changed.clear()
            await self._changed.wait()
        await self._clear(name)

    async def _clear(self, name: str) -> None:
        """Delete the operator's other objects at a site without machines, if the site can be reached."""
        running = self._running.get(name)
        if running is None or not running.runner.complete:
            return
        try:
            await running.runner.clear()
        except SiteError as error:
            if error.retryable:
                raise
            log.warning("site %s: objects beside machines are left there: %s", name, error)

    def _left_at(self, site: CloudSite) -> bool:
        """Return whether Workers or machines may be left at a site."""
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

    def site_changed(self, old: CloudSite | None, new: CloudSite | None) -> None:
        """Reconcile a CloudSite that is new, changed or deleted."""
        item = new or old
        if item is not None and (
            old is None
            or new is None
            or old.metadata.generation != new.metadata.generation
            or old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
            or is_abandoned(old) != is_abandoned(new)
        ):
            self._queue.add(item.metadata.name)

    def worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        """Pass a change of a Worker to the runner of its site.

        If the Worker is new or deleted, ask for a write of the site's status.
        """
        worker = new or old
        if worker is None:
            return
        running = self._running.get(worker.spec.site)
        if running is not None:
            running.runner.worker_changed(old, new)
        if old is None or new is None:
            self._queue.add(worker.spec.site, self._settings.timing.status_spacing_seconds)

    async def _reconcile(self, name: str) -> float | None:
        self._changed.set()
        site = self._registry.sites.get("", name)
        if site is None:
            await self._reconcile_deleted(name)
            return None
        await self._reconcile_runner(site)
        await self._reconcile_status(site)
        return self._next_pass_seconds(site)

    async def _reconcile_deleted(self, name: str) -> None:
        await self._stop(name)
        self._problems.pop(name, None)
        self._queue.forget(name)

    async def _reconcile_runner(self, site: CloudSite) -> None:
        """Keep the runner of a site running; if the provider cannot be created, stop it and record the problem."""
        name = site.metadata.name
        try:
            await self._keep_running(site)
            self._problems.pop(name, None)
        except SetupError as error:
            await self._stop(name)
            self._problems[name] = error

    def _next_pass_seconds(self, site: CloudSite) -> float | None:
        """Return the seconds until the next pass; None if only a change causes a pass.

        A pass reads the provider's Secret at intervals, and follows when a full site may have room again.
        """
        name = site.metadata.name
        secret_seconds = SECRET_CHECK_SECONDS if _secret_name(site) or name in self._problems else None
        running = self._running.get(name)
        exhausted = running.runner.health.exhausted_seconds if running is not None else 0.0
        return min(exhausted, secret_seconds or exhausted) if exhausted else secret_seconds

    async def _keep_running(self, site: CloudSite) -> None:
        """Replace the runner if the provider's settings or Secret have changed; else apply the present spec to it."""
        name = site.metadata.name
        config = await self._config(site)
        running = self._running.get(name)
        if running is not None and running.config == config and not running.task.done():
            running.runner.adjust(site.spec)
            return
        await self._stop(name)
        runner = SiteRunner(
            site,
            GuardedSite(name, self._settings.make_provider(site, config)),
            SiteContext(
                registry=self._registry,
                statuses=self._statuses,
                broker=self._broker,
                meter=self._metering.get_site_meter(name),
                changed=lambda: self._queue.add(name),
                orphan_removed=partial(self._orphan_removed, name),
                evacuate=self._evacuations.evacuate,
                timing=self._settings.timing,
            ),
        )
        if self._group is None:
            raise AssertionError("run() must have started before a site is reconciled")
        self._running[name] = _Running(
            runner, config, self._group.create_task(self._guard(runner), name=f"site {name}")
        )

    async def _guard(self, runner: SiteRunner) -> None:
        """Run a site. If its runner fails because of a defect, ask for a new runner after a pause.

        The failure does not affect other sites.
        """
        try:
            await runner.run()
        except Exception:
            log.exception("site %s: the runner failed because of a defect", runner.name)
        await asyncio.sleep(self._settings.timing.defect_pause_seconds)
        self._queue.add(runner.name)

    async def _stop(self, name: str) -> None:
        running = self._running.pop(name, None)
        if running is not None:
            running.task.cancel()
            await asyncio.wait([running.task])
            _forget_gauges(name)

    async def _reconcile_status(self, site: CloudSite) -> None:
        name = site.metadata.name
        running, problem = self._running.get(name), self._problems.get(name)
        if problem is not None or running is None:
            desired = self._registry.workers.count("site", name)
            setup = (problem.reason, str(problem)) if problem is not None else None
            seen = SiteObservation(SiteWorkers(), desired, setup_problem=setup)
        else:
            seen = running.runner.observe()
            for state, count in running.runner.machines.states.items():
                MACHINES.labels(name, state.value).set(count)
        status = plan_site(site, replace(seen, platform=self._platform), get_time())
        written = await write_status(self._registry.client, self._registry.sites, site.metadata, site.status, status)
        if written and (turn := find_turn(site.status, status)) is not None:
            self._recorder.emit(CLOUD_SITES, site.metadata, turn.reason, turn.note, warning=turn.warning)

    async def _config(self, site: CloudSite) -> SiteConfig:
        _, member = site.spec.provider.get_member()
        secret = _secret_name(site)
        credentials: Mapping[str, str] = {}
        if secret:
            try:
                raw = await self._registry.client.get(SECRETS, secret, self._settings.namespace)
            except NotFoundError:
                message = f"Secret {self._settings.namespace}/{secret} does not exist"
                message += ": create it, or correct the reference in spec.provider"
                raise SetupError(Reason.CREDENTIALS_NOT_FOUND, message) from None
            credentials = {key: base64.b64decode(value).decode() for key, value in (raw.get("data") or {}).items()}
        kubeconfig = self._registry.client.kubeconfig
        return SiteConfig(site.metadata.name, member.to_json(), credentials, self._settings.installation, kubeconfig)

    def _orphan_removed(self, name: str, machine: Machine) -> None:
        log.warning("machine %s (%s) has no Worker and is deleted", machine.id, machine.name)
        note = f"machine {machine.name} had no Worker and was deleted"
        site = self._registry.sites.get("", name)
        if site is not None:
            self._recorder.emit(CLOUD_SITES, site.metadata, Reason.ORPHAN_REMOVED, note, warning=True)
        pool = self._registry.pools.get(machine.owner.namespace, machine.owner.pool)
        if pool is not None:
            self._recorder.emit(WORKER_POOLS, pool.metadata, Reason.ORPHAN_REMOVED, note, warning=True)


def _forget_gauges(name: str) -> None:
    """Remove the gauges of a site after its runner has ended."""
    forget_breaker(name)
    forget_limits(name)
    for state in MachineState:
        with contextlib.suppress(KeyError):
            MACHINES.remove(name, state.value)


def _secret_name(site: CloudSite) -> str:
    """Return the name of the Secret to which the provider's settings refer; empty if they refer to none."""
    _, member = site.spec.provider.get_member()
    references: dict[str, Any] = member.to_json()
    for key in ("credentialsSecretRef", "kubeconfigSecretRef"):
        if isinstance(reference := references.get(key), dict):
            return str(reference["name"])
    return ""
