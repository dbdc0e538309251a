# SPDX-License-Identifier: Apache-2.0
"""Creates the parts of the leading operator, connects them and runs them.

The parts get three kinds of input. Changes of objects reach them as :mod:`simyard.fleet.wiring` declares.
:meth:`Fleet._apply_event` passes them the messages of workers. The methods below it pass them changes of the broker's
state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

from prometheus_client import Counter

from simyard.files.access import StoreAccess
from simyard.files.references import References
from simyard.files.sweep import SweepSettings, run_sweep
from simyard.fleet.actions.fences import Fences
from simyard.fleet.actions.large_results import LargeResults
from simyard.fleet.actions.reconciler import Actions
from simyard.fleet.actions.retention import ActionLimits
from simyard.fleet.broker.health import BrokerHealth
from simyard.fleet.broker.orders import Orders
from simyard.fleet.broker.provisioning import Broker
from simyard.fleet.broker.quarantine import Quarantine
from simyard.fleet.broker.rotation import Rotation
from simyard.fleet.files import FileAnswers
from simyard.fleet.frontends.load import FrontendLoads
from simyard.fleet.frontends.occi_broker import OcciBroker
from simyard.fleet.frontends.reconciler import Frontends
from simyard.fleet.metering import Metering, get_moment
from simyard.fleet.platform_health import PlatformHealth
from simyard.fleet.pools.drains import Drains
from simyard.fleet.pools.licences import Licences
from simyard.fleet.pools.reconciler import Pools
from simyard.fleet.pools.takers import Takers
from simyard.fleet.recorder import Recorder
from simyard.fleet.registry import Registry
from simyard.fleet.services import Services
from simyard.fleet.sites.providers import MakeProvider, make_provider
from simyard.fleet.sites.reconciler import Sites, SitesSettings
from simyard.fleet.studies.reconciler import Studies
from simyard.fleet.timing import PRODUCTION, Timing
from simyard.fleet.wiring import connect
from simyard.fleet.work_queue import OVERDUE, find_most_overdue
from simyard.fleet.worker_statuses import WorkerStatuses
from simyard.guest.messages import ActionMessage, ChunkEnded, DownloadWanted, PartWanted, Registered, UploadWanted
from simyard.kube.cache import ALL_NAMESPACES
from simyard.manifests.frontend import FrontendTemplate
from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.events import (
    DeadLetter,
    DeadLetters,
    OperatorEvents,
    OperatorUpdates,
    OverflowEvents,
    ReceivedEvent,
)
from simyard.messaging.liveness import STATISTICS_SECONDS, Liveness
from simyard.messaging.requests import Requester
from simyard_adapter.file_urls import NO_URLS, AllowedUrls
from simyard_sites.kubernetes.client import KubeClient

log = logging.getLogger(__name__)

DEAD_LETTERS = Counter("simyard_broker_dead_letters_total", "Requests that no worker finished, by reason.", ["reason"])


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """The settings of the leading operator.

    Attributes:
        broker: the operator's access to the broker, as an administrator.
        worker_broker: the address under which workers reach the broker; its user and password are not used.
        namespace: the platform's own namespace.
        installation: name that distinguishes this installation's machines at a site from the machines of other
            installations.
        identity: the name of this operator process.
        statistics_seconds: the broker's ``collect_statistics_interval``.
        occi_amqp: True if OCCI clients may use AMQP; they have a separate virtual host.
        occi_endpoints: URLs of OCCI frontends outside of this installation that serve a queue of this virtual host.
        frontends: the template of the services' frontends; None if this operator creates no frontends, and deletes
            existing ones.
        actions: the limits for the ServiceActions of each namespace.
        watch_namespaces: the namespaces whose pools, workers, services and actions this operator manages.
        rotate_after_seconds: delay between the exit of a worker and the change of its pool's password; 0: no change.
        files: the access to the file store; None if the platform has none.
        files_quota: the maximum bytes of files of a namespace; None: no limit.
        sweep: the settings of the sweep of the file store.
        file_urls: the URLs that file parameters of actions may have.
        make_provider: function that creates the provider of a CloudSite; tests inject another one.
        timing: the pauses of the operator; tests inject shorter ones.
    """

    broker: BrokerAccess
    worker_broker: BrokerAccess
    namespace: str
    installation: str
    identity: str
    statistics_seconds: float = STATISTICS_SECONDS
    occi_amqp: bool = False
    occi_endpoints: tuple[str, ...] = ()
    frontends: FrontendTemplate | None = None
    actions: ActionLimits = field(default_factory=ActionLimits)
    watch_namespaces: tuple[str, ...] = ALL_NAMESPACES
    rotate_after_seconds: int = 3600
    files: StoreAccess | None = None
    files_quota: int | None = None
    sweep: SweepSettings = field(default_factory=SweepSettings)
    file_urls: AllowedUrls = NO_URLS
    make_provider: MakeProvider = make_provider
    timing: Timing = PRODUCTION


class Fleet:
    """The leading operator with all its parts. It must be created inside a running event loop."""

    def __init__(self, client: KubeClient, settings: FleetSettings) -> None:
        timing = settings.timing
        self.registry = registry = Registry(client, settings.watch_namespaces)
        self._admin = BrokerAdmin(settings.broker)
        self.requester = Requester(settings.broker, "operator", self._requester_connected)
        self._connected = False
        self.liveness = Liveness(
            settings.broker,
            self._admin,
            on_change=self._presence_changed,
            on_deleted=self._queue_deleted,
            statistics_seconds=settings.statistics_seconds,
        )
        self.occi_broker = OcciBroker(
            settings.broker, self._admin, clients=settings.occi_amqp, endpoints=settings.occi_endpoints
        )
        self.broker_health = BrokerHealth(
            self._admin, alarm_changed=self._broker_changed, nodes_changed=self.liveness.recheck_soon
        )
        self.broker = Broker(
            settings.broker,
            settings.worker_broker,
            self._admin,
            self.broker_health,
            registry,
            self.occi_broker,
            namespace=settings.namespace,
            changed=self._broker_changed,
            timing=timing,
        )
        self.recorder = Recorder(client, settings.identity)
        clock = asyncio.get_running_loop().time
        self._quarantine = Quarantine(registry, self.broker, self.recorder, clock, timing)
        permits = self._quarantine.count_event
        self._events = OperatorEvents(settings.broker, self._apply_event, permits=permits)
        self._overflow = OverflowEvents(settings.broker, self._apply_event)
        self._updates = OperatorUpdates(settings.broker, self._apply_event, permits=permits)
        self._dead_letters = DeadLetters(settings.broker, _count_dead_letter)
        self.statuses = WorkerStatuses(registry, self.liveness.has_consumer, timing)
        self._metering = Metering(registry, partial(get_moment, client), timing)
        self.sites = Sites(
            registry,
            self.statuses,
            self.broker,
            self.recorder,
            self._metering,
            SitesSettings(settings.namespace, settings.installation, settings.make_provider, timing),
        )
        self._platform = PlatformHealth(self.find_most_overdue, lambda: client.clock_skew_seconds, clock, timing)
        self._licences = Licences(registry)

        def heard(user: str) -> float:
            return min(self._events.measure_heard_seconds(user), self._overflow.measure_heard_seconds(user))

        self.pools = Pools(
            registry,
            self.sites,
            self.broker,
            self.recorder,
            self._licences,
            heard,
            settings.rotate_after_seconds,
            timing,
        )
        loads = FrontendLoads(client, settings.namespace, self.occi_broker)
        self.frontends = Frontends(
            registry, self.recorder, self.occi_broker, loads, settings.namespace, settings.frontends, timing
        )
        self._services = Services(registry, self._licences, self.frontends, timing)
        orders = Orders(registry, self.requester)
        self._drains = Drains(registry, orders)
        self._takers = Takers(registry, orders, timing)
        self._rotation = Rotation(registry, self.broker, self._admin, orders, timing)
        self._sweep = None
        if settings.files is not None:
            references = References(client, settings.watch_namespaces)
            self._sweep = partial(run_sweep, settings.files, references, settings.sweep)
        fences = Fences(registry, self.broker, heard, self._unsettled_seconds, timing)
        large_results = LargeResults(registry, lambda: self._files.catalog, settings.files_quota)
        presence = self.liveness.has_consumer
        self._actions = Actions(
            registry,
            self.requester,
            presence,
            fences,
            settings.actions,
            timing.actions,
            large_results,
            settings.file_urls,
        )
        self._studies = Studies(registry, self.requester, presence, fences, settings.files, timing.actions)
        self._files = FileAnswers(registry, orders, settings.files, self._studies.parts.offer, settings.files_quota)
        connect(
            registry,
            *(self.broker, self._quarantine, self._rotation, self.statuses, self._metering, self.sites),
            *(self._licences, self.pools, self.pools.uses, self._services, self.frontends, self._drains, self._takers),
            *(self._actions, self._actions.retention, self._studies, self._platform),
        )

    def find_most_overdue(self) -> tuple[str, float]:
        """Return the name of the work queue that is most overdue, and by how many seconds; update the metrics."""
        OVERDUE.labels("worker-events").set(events := self._unsettled_seconds())
        return max(find_most_overdue(), ("worker-events", events), key=lambda item: item[1])

    def _unsettled_seconds(self) -> float:
        return max(self._events.measure_oldest_seconds(), self._overflow.measure_oldest_seconds())

    async def run(self) -> NoReturn:
        """Run until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.registry.run(), name="caches")
                await self.registry.wait_until_synced()
                for name, task in (
                    ("broker", self.broker.run()),
                    ("broker health", self.broker_health.run()),
                    ("master key", self.broker.watch_key()),
                    ("rotation", self._when_connected(self._rotation.run)),
                    ("requests", self._when_prepared(self.requester.run)),
                    ("liveness", self.liveness.run()),
                    ("events from workers", self._when_prepared(self._events.run)),
                    ("overflow of events", self._when_prepared(self._overflow.run)),
                    ("updates from workers", self._when_prepared(self._updates.run)),
                    ("quarantine", self._quarantine.run()),
                    ("dead letters", self._when_prepared(self._dead_letters.run)),
                    ("events", self.recorder.run()),
                    ("worker statuses", self.statuses.run()),
                    ("sites", self.sites.run()),
                    ("platform health", self._platform.run()),
                    ("usage", self._metering.run()),
                    ("pools", self.pools.run()),
                    ("licences", self._licences.run()),
                    ("services", self._services.run()),
                    ("frontends", self.frontends.run()),
                    ("files", self._files.run()),
                    ("drains", self._drains.run()),
                    ("takers", self._when_connected(self._takers.run)),
                    ("actions", self._actions.run()),
                    ("assignment", self._actions.assignment.run()),
                    ("studies", self._studies.run()),
                    ("retention of actions", self._actions.prune()),
                ):
                    group.create_task(task, name=name)
                if self._sweep is not None:
                    group.create_task(self._sweep(), name="sweep of files")
        finally:
            await self._admin.aclose()
            await self.occi_broker.aclose()
        raise AssertionError("the tasks do not end")

    async def _when_prepared(self, run: Callable[[], Awaitable[NoReturn]]) -> NoReturn:
        await self.broker.prepared.wait()
        await run()

    async def _when_connected(self, run: Callable[[], Awaitable[NoReturn]]) -> NoReturn:
        await self.requester.wait_until_connected()
        await run()

    def _apply_event(self, event: ReceivedEvent) -> Awaitable[object] | None:
        """Pass a message of a worker to the parts.

        The broker guarantees that the user in a message is its sender. This method checks that the worker in the
        message belongs to this user. It returns the write that must succeed before the message is acknowledged, or
        None.
        """
        if event.user != self.registry.find_sender(event.worker_uid):
            return None
        if isinstance(event.message, DownloadWanted | UploadWanted | PartWanted):
            self._files.apply_event(event)
            return None
        self.pools.apply_event(event)
        self._takers.apply_event(event)
        if isinstance(event.message, Registered):
            self._actions.worker_registered(event.worker_uid)
            self._studies.worker_registered(event.worker_uid)
            self._drains.worker_registered(event.worker_uid)
        if isinstance(event.message, ActionMessage | ChunkEnded) and self._studies.owns(event.message.invocation):
            return self._studies.apply_event(event)
        hearer = self._actions if isinstance(event.message, ActionMessage) else self.statuses
        return hearer.apply_event(event)

    def _requester_connected(self) -> None:
        """Send again the requests that may have been lost with the former connection."""
        self._actions.requester_connected()
        self._studies.requester_connected()

    def _queue_deleted(self, queue: str) -> None:
        self.broker.redeclare_queue(queue)

    def _presence_changed(self, queue: str | None) -> None:
        if queue is not None:
            worker = self.registry.find_worker(queue.rpartition(".")[2])
            if worker is not None:
                self.statuses.presence_changed(worker)
                self._actions.assignment.presence_changed(worker)
                self._studies.presence_changed(worker)
            return
        connected, self._connected = self._connected, self.liveness.connected
        if self._connected and not connected:
            self.broker.sweep_soon()
        for worker in self.registry.workers:
            self.statuses.presence_changed(worker)
            self._actions.assignment.presence_changed(worker)
            self._studies.presence_changed(worker)

    def _broker_changed(self) -> None:
        self.pools.wake_all()
        self.frontends.broker_changed(reachable=self.broker.reachable)


def _count_dead_letter(letter: DeadLetter) -> None:
    """Count and log a request that the broker moved to the dead-letter queue; its caller has got an error already.

    No worker answered the request in time, or several workers received it and did not finish it.
    """
    DEAD_LETTERS.labels(letter.reason).inc()
    log.info("a request was given up: %s %s of %s: %s", letter.kind, letter.message_id, letter.queue, letter.reason)
