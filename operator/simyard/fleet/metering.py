# SPDX-License-Identifier: Apache-2.0
"""Keeps the accounts of all namespaces.

The runners of the sites report their machines here, and this module writes the Usage objects.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NoReturn

from simyard.api import names
from simyard.api.cloud_site import CloudSite, Cost
from simyard.api.quantities import parse_cores
from simyard.api.usage import Usage, UsageRow
from simyard.fleet.registry import Registry, find_removed, get_time
from simyard.fleet.sites.machines import MachineTable
from simyard.fleet.status_writes import write_status
from simyard.fleet.timing import PRODUCTION, Timing
from simyard.fleet.usage_metrics import COLLECTOR
from simyard.fleet.work_queue import KeyQueue, RateLimit
from simyard.plan.metering import MAX_CATCH_UP_MILLISECONDS, Account, MachineKey, Metered, Moment, RowKey
from simyard.plan.times import filter_skew
from simyard_sites.base import Machine, MachineState, Stage
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import AlreadyExistsError, NotFoundError

WRITES_PER_SECOND = 10.0
"""Rate of writes over all namespaces."""
MAX_ENDED = 20_000
MAX_LATE_MILLISECONDS = 60_000
"""Maximum delay of an event, and maximum difference of two clocks; a larger value counts as a wrong clock."""


def get_moment(client: KubeClient | None = None) -> Moment:
    """Return the present time on the wall clock and on a steady clock.

    If the clock of this node differs from the API server's clock, the result uses the API server's clock, so that a
    wrong clock changes no namespace's cost.
    """
    ahead = filter_skew(client.clock_skew_seconds if client is not None else None)
    return Moment(round((get_time().timestamp() + ahead) * 1000), time.monotonic_ns() // 1_000_000)


class SiteMeter:
    """The meter of one site: the runner of the site reports its machines to it. Its methods do not wait.

    A machine counts from the time at which it entered ``running``, as its site reports, until it is gone. A stopped or
    failed machine counts too, because it keeps its place at the site. A machine whose Worker is deleted counts as long
    as it exists, because it costs money. While some machines of the site are unknown, the meter counts no machine.
    Later, it counts this time for the machines that still exist.
    """

    def __init__(self, name: str, metering: Metering) -> None:
        self._name = name
        self._metering = metering
        self._complete_at: Moment | None = None
        self._starting: dict[str, int] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()

    @property
    def is_complete(self) -> bool:
        """True while all machines of the site are known."""
        return self._complete_at is not None

    def machine_seen(self, machine: Machine) -> None:
        """Record a new machine, or a new state of a machine."""
        if self._complete_at is None:
            return
        now = self._metering.clock()
        if _runs(machine):
            since = self._starting.pop(machine.id, self._complete_at.steady)
            self._open(machine, now, now.steady - since + MAX_LATE_MILLISECONDS)
        else:
            self._starting.setdefault(machine.id, now.steady)

    def machine_gone(self, machine: Machine) -> None:
        """Record that a machine does not exist any more."""
        self._starting.pop(machine.id, None)
        now = self._metering.clock() if self.is_complete else None
        self._close(machine.owner.namespace, machine.id, now)

    def set_inventory(self, machines: MachineTable | None) -> None:
        """Record that ``machines`` are all machines of the site; None: from now on, some machines may be unknown."""
        if (machines is not None) == self.is_complete:
            return
        now = self._metering.clock()
        if machines is None:
            self._metering.advance(self._name, now)
            self._complete_at = None
            return
        for namespace, account in self._metering.list_accounts():
            for machine_id in account.list_machines(self._name):
                if machines.get(machine_id) is None:
                    self._close(namespace, machine_id, None)
        self._complete_at = now
        self._starting.clear()
        for machine in machines:
            if _runs(machine):
                self._open(machine, now, MAX_CATCH_UP_MILLISECONDS)
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
            while len(self._ended) > MAX_ENDED:
                self._ended.popitem(last=False)


def _runs(machine: Machine) -> bool:
    """Return whether a machine has begun to run; it may be in a later state now."""
    return Stage.RUNNING in machine.entered or machine.state is MachineState.RUNNING


class _Ledger:
    """The account of a namespace, with the rows of its Usage that this process last wrote or read."""

    def __init__(self, account: Account, rows: list[UsageRow]) -> None:
        self.account = account
        self.stored = self.written = rows

    def is_of(self, rows: list[UsageRow]) -> bool:
        """Return whether the account continues from these rows; False if another process has written them."""
        return rows in (self.stored, self.written)


class Metering:
    """The accounts of all namespaces. It reads them from the Usage objects, and one task writes them back.

    Each write stores the sums together with the time up to which they are complete. It succeeds only if the stored rows
    are the rows that this process knows. So no time counts twice, even if an operator is killed, or if two operators
    write at the same time.
    """

    def __init__(
        self, registry: Registry, clock: Callable[[], Moment] = get_moment, timing: Timing = PRODUCTION
    ) -> None:
        self.clock = clock
        self._timing = timing
        self._registry = registry
        self._sites: dict[str, SiteMeter] = {}
        self._ledgers: dict[str, _Ledger] = {}
        spacing = timing.usage_spacing_seconds
        self._queue: KeyQueue[str] = KeyQueue("usage", self._write, concurrency=4, spacing_seconds=spacing)
        self._budget = RateLimit(WRITES_PER_SECOND, time.monotonic)

    async def run(self) -> NoReturn:
        """Write accounts until cancelled."""
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

    def get_site_meter(self, name: str) -> SiteMeter:
        """Return the meter of a site. Later calls with the same name return the same meter."""
        return self._sites.setdefault(name, SiteMeter(name, self))

    def list_accounts(self) -> Iterator[tuple[str, Account]]:
        """Return all accounts, by namespace."""
        return ((namespace, ledger.account) for namespace, ledger in self._ledgers.items())

    def count_current(self) -> Iterator[tuple[str, UsageRow]]:
        """Yield all rows with their namespaces; rows of sites whose machines are all known are counted up to now."""
        now = self.clock()
        for name in self._sites:
            self.advance(name, now)
        for namespace, account in self.list_accounts():
            for row in account.list_rows():
                yield namespace, row

    # Reports of sites

    def open(self, site: str, machine: Machine, now: Moment, most_milliseconds: int) -> None:
        """Begin to count a running machine."""
        namespace, key = machine.owner.namespace, MachineKey(site, machine.id)
        account = self._ledger(namespace).account
        if key in account:
            return
        price = self._price(site)
        metered = self._metered(site, machine, account, price.currency, now)
        account.open(key, metered, price, now, most_milliseconds)
        self._queue.add(namespace, self._timing.usage_started_seconds)

    def close(self, namespace: str, key: MachineKey, now: Moment | None) -> bool:
        """Count a machine for the last time; return whether the account had counted it."""
        closed = namespace in self._ledgers and self._ledgers[namespace].account.close(key, now)
        if closed:
            self._queue.add(namespace, self._timing.usage_spacing_seconds)
        return closed

    def advance(self, site: str, now: Moment) -> None:
        """Count the machines of a site up to now, if all machines of the site are known."""
        if self._knows(site):
            for _, account in self.list_accounts():
                account.advance(site, now)

    def compare(self, site: str) -> None:
        """Ask for a write of each account whose number of running machines at a site differs from its stored rows.

        A former operator may have stored machines that ended while no operator ran. No event reports their end, so
        without this comparison they would count for ever.
        """
        for usage in self._registry.usages:
            namespace = usage.metadata.namespace
            if self._ledger(namespace).account.differs(usage.status.rows, site):
                self._queue.add(namespace, self._timing.usage_spacing_seconds)

    def _metered(self, site: str, machine: Machine, account: Account, currency: str, now: Moment) -> Metered:
        """Return the row, the size and the start of a machine.

        The service comes from the Worker of the machine, else from its pool, else from the existing rows. If the site
        does not report the start of a machine, the machine counts from now.
        """
        owner = machine.owner
        worker = self._registry.find_worker(owner.worker_uid)
        served = worker if worker is not None else self._registry.pools.get(owner.namespace, owner.pool)
        name = served.spec.service_ref.name if served is not None else account.find_service(owner.pool, site)
        published = self._registry.services.get(owner.namespace, name)
        spec = published.service.spec if published is not None else None
        resources = (worker.spec.resources if worker is not None else None) or (spec.resources if spec else None)
        running = machine.entered.get(Stage.RUNNING)
        return Metered(
            RowKey(owner.pool, name, site, currency),
            cores=parse_cores(resources.cpu) if resources is not None else 1,
            licences=1 if spec is not None and spec.licence is not None else 0,
            running=round(running * 1000) if running is not None else now.wall,
        )

    def _knows(self, site: str) -> bool:
        """Return whether all machines of a site are known."""
        meter = self._sites.get(site)
        return meter is not None and meter.is_complete

    def _price(self, site: str) -> Cost:
        found = self._registry.sites.get("", site)
        return found.spec.cost if found is not None else Cost()

    # Stored accounts

    def _ledger(self, namespace: str) -> _Ledger:
        if namespace not in self._ledgers:
            rows = self._stored(namespace)
            self._ledgers[namespace] = _Ledger(Account(rows, self.clock()), rows)
        return self._ledgers[namespace]

    def _stored(self, namespace: str) -> list[UsageRow]:
        usage = self._registry.usages.get(namespace, names.USAGE)
        return usage.status.rows if usage is not None else []

    def site_changed(self, old: CloudSite | None, new: CloudSite | None) -> None:
        """Stop counting the machines of a deleted CloudSite; apply a changed price of a CloudSite."""
        if old is not None and new is None:
            self._remove_site(old.metadata.name)
        elif old is not None and new is not None and old.spec.cost != new.spec.cost:
            name = new.metadata.name
            self.advance(name, self.clock())
            for _, account in self.list_accounts():
                account.reprice(name, new.spec.cost)

    def _remove_site(self, name: str) -> None:
        """Stop counting the machines of a deleted site, even if some of them still run."""
        self._sites.pop(name, None)
        for namespace, account in self.list_accounts():
            for machine_id in account.list_machines(name):
                self.close(namespace, MachineKey(name, machine_id), None)

    def usage_changed(self, old: Usage | None, new: Usage | None) -> None:
        """Continue the account of a namespace from its stored Usage."""
        left = find_removed(old, new)
        if left is not None and left.metadata.namespace in self._ledgers:
            self._removed(left.metadata.namespace)
        elif new is not None:
            self._agree(new.metadata.namespace)
            # A former leader may have stored machines that this process has not seen.
            self._queue.add(new.metadata.namespace, self._timing.usage_idle_seconds)

    def _removed(self, namespace: str) -> None:
        """Handle a deleted Usage: create it again if machines run in the namespace, else forget the account."""
        if len(self._ledgers[namespace].account):
            self._queue.add(namespace, self._timing.usage_spacing_seconds)
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
        status, ended = ledger.account.build_status(), len(ledger.account.closed)
        usage = self._registry.usages.get(namespace, names.USAGE) or await self._create(namespace)
        if usage is None:
            return self._timing.usage_spacing_seconds
        ledger.written = status.rows
        client, cache = self._registry.client, self._registry.usages
        if not await write_status(client, cache, usage.metadata, usage.status, status, guarded=True):
            await self._look(namespace)
            return self._timing.usage_spacing_seconds
        ledger.stored = status.rows
        del ledger.account.closed[:ended]
        return self._timing.usage_idle_seconds if len(ledger.account) else None

    def _agree(self, namespace: str) -> _Ledger:
        """Return an account that continues from the stored rows.

        If another process has written the rows, they are complete up to their time. After this time, the account counts
        the machines that this process has seen.
        """
        ledger, rows = self._ledger(namespace), self._stored(namespace)
        if ledger.is_of(rows):
            return ledger
        account = ledger.account.rebase(rows, self._price, self._knows, self.clock())
        self._ledgers[namespace] = new = _Ledger(account, rows)
        if account.closed:
            self._queue.add(namespace, self._timing.usage_spacing_seconds)
        return new

    async def _create(self, namespace: str) -> Usage | None:
        """Create the Usage of a namespace; return None if it exists already or is not needed any more."""
        body = {
            "apiVersion": names.USAGES.api_version,
            "kind": names.USAGES.kind,
            "metadata": {"name": names.USAGE, "namespace": namespace},
        }
        try:
            return self._registry.usages.learn(await self._registry.client.create(names.USAGES, body, namespace))
        except AlreadyExistsError:
            await self._look(namespace)
        except NotFoundError:  # the namespace was deleted, so the account is needed only while its machines run
            if len(self._ledgers[namespace].account):
                raise
            self._removed(namespace)
        return None

    async def _look(self, namespace: str) -> None:
        """Read the Usage of a namespace from the API server, because the cache may be behind."""
        cache = self._registry.usages
        try:
            cache.learn(await self._registry.client.get(names.USAGES, names.USAGE, namespace))
        except NotFoundError:
            if (usage := cache.get(namespace, names.USAGE)) is not None:
                cache.forget(usage)
