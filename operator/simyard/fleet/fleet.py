"""Everything that the leading operator runs, wired together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

from prometheus_client import Counter

from simyard.build.frontend import FrontendTemplate
from simyard.fleet.actions import Actions
from simyard.fleet.broker import Broker
from simyard.fleet.broker_health import BrokerHealth
from simyard.fleet.drains import Drains
from simyard.fleet.fences import Fences
from simyard.fleet.frontend_load import FrontendLoads
from simyard.fleet.frontends import Frontends
from simyard.fleet.licences import Licences
from simyard.fleet.metering import Metering, moment
from simyard.fleet.occi_broker import OcciBroker
from simyard.fleet.orders import Orders
from simyard.fleet.pools import Pools
from simyard.fleet.quarantine import Quarantine
from simyard.fleet.queue import OVERDUE, most_overdue
from simyard.fleet.recorder import Recorder
from simyard.fleet.registry import Registry
from simyard.fleet.retention import ActionLimits
from simyard.fleet.rotation import Rotation
from simyard.fleet.services import Services
from simyard.fleet.sites import Sites
from simyard.fleet.takers import Takers
from simyard.fleet.workers import WorkerStatuses
from simyard.guest.messages import Begun, Progressed, Registered, Resulted
from simyard.kube.cache import ALL_NAMESPACES
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
from simyard_sites.kubernetes.client import KubeClient

log = logging.getLogger(__name__)

DEAD_LETTERS = Counter("simyard_broker_dead_letters_total", "Requests that no worker finished, by why.", ["reason"])


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Where things are.

    Attributes:
        broker: the operator's own access, as an administrator.
        worker_broker: the same broker as workers reach it (its user and password are not used).
        namespace: the platform's own namespace.
        installation: tells our machines at a site from those of other installations.
        identity: which operator process this is.
        statistics_seconds: the broker's ``collect_statistics_interval``.
        occi_amqp: OCCI clients may speak AMQP, in a virtual host of their own.
        occi_endpoints: URLs of OCCI frontends that somebody else runs, which serve a queue there.
        frontends: what the services' own frontends are made from; None: this operator makes none, and keeps none.
        watch_namespaces: whose pools, workers, services and actions it works for.
        rotate_after_seconds: a pool's password at the broker changes so long after a worker left it; 0: never.
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


class Fleet:
    """Sites, pools, workers, services and actions, kept as they should be. Made inside of a running event loop."""

    def __init__(self, client: KubeClient, settings: FleetSettings) -> None:
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
        )
        self.recorder = Recorder(client, settings.identity)
        clock = asyncio.get_running_loop().time
        self._quarantine = Quarantine(registry, self.broker, self.recorder, clock)
        permits = self._quarantine.permits
        self._events = OperatorEvents(settings.broker, self._take, permits=permits)
        self._overflow = OverflowEvents(settings.broker, self._take)
        self._updates = OperatorUpdates(settings.broker, self._take, permits=permits)
        self._dead_letters = DeadLetters(settings.broker, _give_up)
        self.statuses = WorkerStatuses(registry, self.liveness.present)
        self._metering = Metering(registry, partial(moment, client))
        self.sites = Sites(
            registry,
            self.statuses,
            self.broker,
            self.recorder,
            self._metering,
            namespace=settings.namespace,
            installation=settings.installation,
        )
        self._licences = Licences(registry)

        def heard(user: str) -> float:
            return min(self._events.heard_seconds(user), self._overflow.heard_seconds(user))

        self.pools = Pools(
            registry, self.sites, self.broker, self.recorder, self._licences, heard, settings.rotate_after_seconds
        )
        loads = FrontendLoads(client, settings.namespace, self.occi_broker)
        self.frontends = Frontends(
            registry, self.recorder, self.occi_broker, loads, settings.namespace, settings.frontends
        )
        self._services = Services(registry, self._licences, self.frontends)
        orders = Orders(registry, self.requester)
        self._drains = Drains(registry, orders)
        self._takers = Takers(registry, orders)
        self._rotation = Rotation(registry, self.broker, self._admin, orders)
        fences = Fences(registry, self.broker, heard, self._unsettled_seconds)
        self._actions = Actions(registry, self.requester, fences, settings.actions)

    def most_overdue(self) -> tuple[str, float]:
        """Return the part of the work that is behind most, and for how many seconds; brings the metrics up to date."""
        OVERDUE.labels("worker-events").set(events := self._unsettled_seconds())
        return max(most_overdue(), ("worker-events", events), key=lambda item: item[1])

    def _unsettled_seconds(self) -> float:
        return max(self._events.oldest_seconds(), self._overflow.oldest_seconds())

    async def run(self) -> NoReturn:
        """Run until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.registry.run(), name="caches")
                await self.registry.synced()
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
                    ("usage", self._metering.run()),
                    ("pools", self.pools.run()),
                    ("licences", self._licences.run()),
                    ("services", self._services.run()),
                    ("frontends", self.frontends.run()),
                    ("drains", self._drains.run()),
                    ("takers", self._when_connected(self._takers.run)),
                    ("actions", self._actions.run()),
                    ("assignment", self._actions.assign()),
                    ("retention of actions", self._actions.prune()),
                ):
                    group.create_task(task, name=name)
        finally:
            await self._admin.aclose()
            await self.occi_broker.aclose()
        raise AssertionError("the tasks do not end")

    async def _when_prepared(self, run: Callable[[], Awaitable[NoReturn]]) -> NoReturn:
        await self.broker.prepared.wait()
        await run()

    async def _when_connected(self, run: Callable[[], Awaitable[NoReturn]]) -> NoReturn:
        await self.requester.until_connected()
        await run()

    def _take(self, event: ReceivedEvent) -> Awaitable[object] | None:
        """Apply an event from a worker; return what it waits for before it is handled.

        The broker vouches for the user; that this user speaks for a worker of its own is checked here.
        """
        if event.user != self.registry.sender(event.worker_uid):
            return None
        self.pools.take(event)
        self._takers.take(event)
        if isinstance(event.message, Registered):
            self._actions.registered(event.worker_uid)
            self._drains.registered(event.worker_uid)
        taker = self._actions if isinstance(event.message, Begun | Progressed | Resulted) else self.statuses
        return taker.take(event)

    def _requester_connected(self) -> None:
        """What was being sent when the connection was lost is sent again."""
        self._actions.reconnected()

    def _queue_deleted(self, queue: str) -> None:
        self.broker.queue_lost(queue)

    def _presence_changed(self, queue: str | None) -> None:
        if queue is not None:
            worker = self.registry.worker(queue.rpartition(".")[2])
            if worker is not None:
                self.statuses.presence_changed(worker)
            return
        connected, self._connected = self._connected, self.liveness.connected
        if self._connected and not connected:
            self.broker.sweep_soon()
        for worker in self.registry.workers:
            self.statuses.presence_changed(worker)

    def _broker_changed(self) -> None:
        self.pools.wake_all()
        self.frontends.broker_changed(reachable=self.broker.reachable)


def _give_up(letter: DeadLetter) -> None:
    """Requests that nobody answered in time, or that ended several workers: their callers have been told already."""
    DEAD_LETTERS.labels(letter.reason).inc()
    log.info("a request was given up: %s %s of %s: %s", letter.kind, letter.message_id, letter.queue, letter.reason)
