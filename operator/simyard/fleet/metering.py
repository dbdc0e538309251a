"""Keeps the account of every namespace: follows the machines, writes the Usage objects, shows the sums as metrics."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NoReturn

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from simyard.api import names
from simyard.api.cloud_site import CloudSite, Cost
from simyard.api.quantities import cores_of
from simyard.api.usage import HOUR_MILLISECONDS, Usage, UsageRow
from simyard.fleet.machines import MachineTable
from simyard.fleet.queue import KeyQueue, RateLimit
from simyard.fleet.registry import Registry, gone, now
from simyard.fleet.statuses import write_status
from simyard.plan.metering import MOST_CATCH_UP_MILLISECONDS, Account, MachineKey, Metered, Moment, RowKey
from simyard.plan.times import believed_skew
from simyard_sites.base import Machine, MachineState, Stage
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import AlreadyExistsError, NotFoundError

SPACING_SECONDS = 1.0
STARTED_SECONDS = 10.0
"""So long after machines started it is written that they run; what was used is not lost when it never is."""
IDLE_SECONDS = 3600.0
WRITES_PER_SECOND = 10.0
"""Over all namespaces."""
MOST_ENDED = 20_000
MOST_LATE_MILLISECONDS = 60_000
"""By so much an event may be late, or two clocks apart, and be believed."""


def moment(client: KubeClient | None = None) -> Moment:
    """Return the time now; by the API server's clock where ours is wrong, so that nothing is charged for the error."""
    ahead = believed_skew(client.clock_skew_seconds if client is not None else None)
    return Moment(round((now().timestamp() + ahead) * 1000), time.monotonic_ns() // 1_000_000)


class SiteMeter:
    """Follows the machines of one site. What it does takes a moment, and never waits.

    A machine is counted from when its site says that it entered ``running`` until it is gone: one that is stopped or
    has failed keeps its place, and one that outlives its Worker costs as well. While not all machines of the site are
    known, nothing there is counted: it is caught up for those that are still there.
    """

    def __init__(self, name: str, metering: Metering) -> None:
        self._name = name
        self._metering = metering
        self._settled_at: Moment | None = None
        self._starting: dict[str, int] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()

    @property
    def settled(self) -> bool:
        """Whether all machines of the site are known."""
        return self._settled_at is not None

    def seen(self, machine: Machine) -> None:
        """A machine is new, or in another state."""
        if self._settled_at is None:
            return
        now = self._metering.clock()
        if _runs(machine):
            since = self._starting.pop(machine.id, self._settled_at.steady)
            self._open(machine, now, now.steady - since + MOST_LATE_MILLISECONDS)
        else:
            self._starting.setdefault(machine.id, now.steady)

    def gone(self, machine: Machine) -> None:
        """A machine does not exist any more."""
        self._starting.pop(machine.id, None)
        now = self._metering.clock() if self.settled else None
        self._close(machine.owner.namespace, machine.id, now)

    def settle(self, machines: MachineTable | None) -> None:
        """All machines are known and are these; or, with None, they are not all known any more."""
        if (machines is not None) == self.settled:
            return
        now = self._metering.clock()
        if machines is None:
            self._metering.advance(self._name, now)
            self._settled_at = None
            return
        for namespace, account in self._metering.accounts():
            for machine_id in account.machines(self._name):
                if machines.get(machine_id) is None:
                    self._close(namespace, machine_id, None)
        self._settled_at = now
        self._starting.clear()
        for machine in machines:
            if _runs(machine):
                self._open(machine, now, MOST_CATCH_UP_MILLISECONDS)
            else:
                self._starting[machine.id] = now.steady
        self._metering.compare(self._name)

    def _open(self, machine: Machine, now: Moment, most_milliseconds: int) -> None:
        if machine.id in self._ended:
            most_milliseconds = 0
        self._metering.open(self._name, machine, now, most_milliseconds)

    def _close(self, namespace: str, machine_id: str, now: Moment | None) -> None:
        if self._metering.close(namespace, MachineKey(self._name, machine_id), now):
            self._ended[machine_id] = None
            while len(self._ended) > MOST_ENDED:
                self._ended.popitem(last=False)


def _runs(machine: Machine) -> bool:
    """Whether it has begun to run, whatever it does now."""
    return Stage.RUNNING in machine.entered or machine.state is MachineState.RUNNING


class _Ledger:
    """The account of a namespace, and the rows that its Usage may have as far as this process wrote or read them."""

    def __init__(self, account: Account, rows: list[UsageRow]) -> None:
        self.account = account
        self.stored = self.written = rows

    def is_of(self, rows: list[UsageRow]) -> bool:
        """Whether the account goes on from these rows: nobody else has written meanwhile."""
        return rows in (self.stored, self.written)


class Metering:
    """The accounts of all namespaces. They are read from the Usage objects, and written there by one task.

    What is written are sums and the time up to which they are true, together, and only over what this process knows to
    be there: nothing is counted twice, whoever dies when, or writes beside it.
    """

    def __init__(self, registry: Registry, clock: Callable[[], Moment] = moment) -> None:
        self.clock = clock
        self._registry = registry
        self._sites: dict[str, SiteMeter] = {}
        self._ledgers: dict[str, _Ledger] = {}
        self._queue: KeyQueue[str] = KeyQueue("usage", self._write, concurrency=4, spacing_seconds=SPACING_SECONDS)
        self._budget = RateLimit(WRITES_PER_SECOND, time.monotonic)
        registry.sites.subscribe(self._site_changed)
        registry.usages.subscribe(self._usage_changed)

    async def run(self) -> NoReturn:
        """Write what is due until cancelled."""
        stored = {row.site for usage in self._registry.usages for row in usage.status.rows if row.workers}
        for usage in self._registry.usages:
            self._ledger(usage.metadata.namespace)
        for site in stored - {site.metadata.name for site in self._registry.sites}:
            self.compare(site)
        COLLECTOR.sources.append(self)
        try:
            await self._queue.run()
        finally:
            COLLECTOR.sources.remove(self)
        raise AssertionError("the queue does not end")

    def site(self, name: str) -> SiteMeter:
        """The meter of a site; there is one for each name."""
        return self._sites.setdefault(name, SiteMeter(name, self))

    def accounts(self) -> Iterator[tuple[str, Account]]:
        """All accounts, by namespace."""
        return ((namespace, ledger.account) for namespace, ledger in self._ledgers.items())

    def current(self) -> Iterator[tuple[str, UsageRow]]:
        """All rows by namespace, counted up to now where the machines are known."""
        now = self.clock()
        for name in self._sites:
            self.advance(name, now)
        for namespace, account in self.accounts():
            for row in account.rows():
                yield namespace, row

    # What sites tell

    def open(self, site: str, machine: Machine, now: Moment, most_milliseconds: int) -> None:
        """Count a machine that runs."""
        namespace, key = machine.owner.namespace, MachineKey(site, machine.id)
        account = self._ledger(namespace).account
        if key in account:
            return
        price = self._price(site)
        metered = self._metered(site, machine, account, price.currency, now)
        account.open(key, metered, price, now, most_milliseconds)
        self._queue.add(namespace, STARTED_SECONDS)

    def close(self, namespace: str, key: MachineKey, now: Moment | None) -> bool:
        """Count a machine no longer; whether it was counted."""
        closed = namespace in self._ledgers and self._ledgers[namespace].account.close(key, now)
        if closed:
            self._queue.add(namespace, SPACING_SECONDS)
        return closed

    def advance(self, site: str, now: Moment) -> None:
        """Count what runs at a site up to now, if all its machines are known."""
        if self._knows(site):
            for _, account in self.accounts():
                account.advance(site, now)

    def compare(self, site: str) -> None:
        """Have those accounts written that say otherwise than what is stored how many machines run at a site.

        Ends that were not written are heard of by nobody again, and the rows would be taken to run for ever.
        """
        for usage in self._registry.usages:
            namespace = usage.metadata.namespace
            if self._ledger(namespace).account.differs(usage.status.rows, site):
                self._queue.add(namespace, SPACING_SECONDS)

    def _metered(self, site: str, machine: Machine, account: Account, currency: str, now: Moment) -> Metered:
        """The machine's row and size: those of its Worker's service, else of its pool's, else of the rows there are.

        A site that does not say since when it runs may not have it counted for longer than it is known.
        """
        owner = machine.owner
        worker = self._registry.worker(owner.worker_uid)
        served = worker if worker is not None else self._registry.pools.get(owner.namespace, owner.pool)
        name = served.spec.service_ref.name if served is not None else account.service_of(owner.pool, site)
        published = self._registry.services.get(owner.namespace, name)
        spec = published.service.spec if published is not None else None
        resources = (worker.spec.resources if worker is not None else None) or (spec.resources if spec else None)
        running = machine.entered.get(Stage.RUNNING)
        return Metered(
            RowKey(owner.pool, name, site, currency),
            cores=cores_of(resources.cpu) if resources is not None else 1,
            licences=1 if spec is not None and spec.licence is not None else 0,
            running=round(running * 1000) if running is not None else now.wall,
        )

    def _knows(self, site: str) -> bool:
        """Whether all machines of a site are known."""
        meter = self._sites.get(site)
        return meter is not None and meter.settled

    def _price(self, site: str) -> Cost:
        found = self._registry.sites.get("", site)
        return found.spec.cost if found is not None else Cost()

    # What is stored

    def _ledger(self, namespace: str) -> _Ledger:
        if namespace not in self._ledgers:
            rows = self._stored(namespace)
            self._ledgers[namespace] = _Ledger(Account(rows, self.clock()), rows)
        return self._ledgers[namespace]

    def _stored(self, namespace: str) -> list[UsageRow]:
        usage = self._registry.usages.get(namespace, names.USAGE)
        return usage.status.rows if usage is not None else []

    def _site_changed(self, old: CloudSite | None, new: CloudSite | None) -> None:
        if old is not None and new is None:
            self._remove_site(old.metadata.name)
        elif old is not None and new is not None and old.spec.cost != new.spec.cost:
            name = new.metadata.name
            self.advance(name, self.clock())
            for _, account in self.accounts():
                account.reprice(name, new.spec.cost)

    def _remove_site(self, name: str) -> None:
        """A site is not there any more, perhaps without having been emptied: what runs there is nobody's to say."""
        self._sites.pop(name, None)
        for namespace, account in self.accounts():
            for machine_id in account.machines(name):
                self.close(namespace, MachineKey(name, machine_id), None)

    def _usage_changed(self, old: Usage | None, new: Usage | None) -> None:
        left = gone(old, new)
        if left is not None and left.metadata.namespace in self._ledgers:
            self._removed(left.metadata.namespace)
        elif new is not None:
            self._agree(new.metadata.namespace)
            self._queue.add(new.metadata.namespace, IDLE_SECONDS)  # an old leader may have written what it alone saw

    def _removed(self, namespace: str) -> None:
        """The Usage, or its whole namespace, is not there any more."""
        if len(self._ledgers[namespace].account):
            self._queue.add(namespace, SPACING_SECONDS)
        else:
            del self._ledgers[namespace]
            self._queue.forget(namespace)

    async def _write(self, namespace: str) -> float | None:
        if namespace not in self._ledgers:
            return None
        await asyncio.sleep(self._budget.reserve())
        ledger = self._agree(namespace)
        now = self.clock()
        for name in filter(self._knows, self._sites):
            ledger.account.advance(name, now)
        ledger.account.fold(lambda pool: self._registry.pools.get(namespace, pool) is not None)
        status, ended = ledger.account.status(), len(ledger.account.closed)
        usage = self._registry.usages.get(namespace, names.USAGE) or await self._create(namespace)
        if usage is None:
            return SPACING_SECONDS
        ledger.written = status.rows
        client, cache = self._registry.client, self._registry.usages
        if not await write_status(client, cache, usage.metadata, usage.status, status, guarded=True):
            await self._look(namespace)
            return SPACING_SECONDS
        ledger.stored = status.rows
        del ledger.account.closed[:ended]
        return IDLE_SECONDS if len(ledger.account) else None

    def _agree(self, namespace: str) -> _Ledger:
        """The account, going on from what is stored.

        When somebody else has written, theirs is the account up to its time, and what this process saw of machines is
        counted from there.
        """
        ledger, rows = self._ledger(namespace), self._stored(namespace)
        if ledger.is_of(rows):
            return ledger
        account = ledger.account.rebased(rows, self._price, self._knows, self.clock())
        self._ledgers[namespace] = new = _Ledger(account, rows)
        if account.closed:
            self._queue.add(namespace, SPACING_SECONDS)
        return new

    async def _create(self, namespace: str) -> Usage | None:
        """Make the namespace's Usage; None when one is there already, or nobody needs it any more."""
        body = {
            "apiVersion": names.USAGES.api_version,
            "kind": names.USAGES.kind,
            "metadata": {"name": names.USAGE, "namespace": namespace},
        }
        try:
            return self._registry.usages.learn(await self._registry.client.create(names.USAGES, body, namespace))
        except AlreadyExistsError:
            await self._look(namespace)
        except NotFoundError:  # the namespace is gone: as soon as its machines are, nobody needs the account
            if len(self._ledgers[namespace].account):
                raise
            self._removed(namespace)
        return None

    async def _look(self, namespace: str) -> None:
        """Read the Usage from the API server: the cache may lag behind."""
        cache = self._registry.usages
        try:
            cache.learn(await self._registry.client.get(names.USAGES, names.USAGE, namespace))
        except NotFoundError:
            if (usage := cache.get(namespace, names.USAGE)) is not None:
                cache.forget(usage)


class UsageCollector(Collector):
    """Shows the accounts of the process as counters, at the time of each scrape."""

    def __init__(self) -> None:
        self.sources: list[Metering] = []

    def describe(self) -> list[Metric]:
        """Nothing: what there is depends on the time."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The counters; they go on where those of another process ended, as the ledgers do."""
        labels = ["namespace", "pool", "service", "site"]
        prefix = "simyard_usage"
        workers = CounterMetricFamily(f"{prefix}_worker_seconds", "Time for which machines ran.", labels=labels)
        cores = CounterMetricFamily(f"{prefix}_core_seconds", "The same, times the cores of each.", labels=labels)
        licences = CounterMetricFamily(f"{prefix}_licence_seconds", "The same, times its licence seats.", labels=labels)
        cost = CounterMetricFamily(
            f"{prefix}_cost", "What machines cost, in the currency.", labels=[*labels, "currency"]
        )
        sums: dict[tuple[str, str, str, str], list[float]] = {}
        for source in self.sources:
            for namespace, row in source.current():
                values = [namespace, row.pool, row.service, row.site]
                total = sums.setdefault((namespace, row.pool, row.service, row.site), [0.0, 0.0, 0.0])
                total[0] += row.worker_milliseconds / 1000
                total[1] += row.core_milliseconds / 1000
                total[2] += row.licence_milliseconds / 1000
                exact = row.cost_millis + row.cost_remainder / HOUR_MILLISECONDS
                cost.add_metric([*values, row.currency], exact / 1000)
        for key, total in sums.items():
            for family, value in zip((workers, cores, licences), total, strict=True):
                family.add_metric(list(key), value)
        yield from (workers, cores, licences, cost)


COLLECTOR = UsageCollector()
REGISTRY.register(COLLECTOR)
