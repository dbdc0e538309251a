# SPDX-License-Identifier: Apache-2.0
"""Account of the use and cost of machines; each machine counts from its start until it is gone.

Each row of a namespace's account holds sums up to a point in time, and the numbers of workers, cores and licence seats
that are in use since then. With these numbers, the account updates a row in one step, however many machines run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simyard.api.base import from_seconds
from simyard.api.cloud_site import Cost
from simyard.api.usage import HOUR_MILLISECONDS, MAX_ROWS, UsageRow, UsageStatus

MAX_CATCH_UP_MILLISECONDS = 7 * 24 * HOUR_MILLISECONDS
"""Maximum time that the account adds at once for a time without an operator; it bounds the cost of a wrong clock."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Present time in milliseconds on two clocks: a wall clock (since the epoch; it can jump) and a steady clock."""

    wall: int
    steady: int


class RowKey(NamedTuple):
    """Key of a row in the account of a namespace."""

    pool: str
    service: str
    site: str
    currency: str


class MachineKey(NamedTuple):
    """Key of a machine; ids are unique only within a site."""

    site: str
    id: str


@dataclass(frozen=True, slots=True)
class Metered:
    """Running machine: its row, its size, and ``running``, the time of its start in milliseconds since the epoch."""

    row: RowKey
    cores: int
    licences: int
    running: int


Closed = tuple[Metered, Moment]


@dataclass(slots=True)
class _Row:
    """Row of an account: sums up to ``until``, and the total size of the machines that run since then.

    The unit of ``cost`` is 1/3,600,000 of a thousandth of the currency, so that all sums are exact integers.
    """

    until: Moment
    price: Cost
    worker_milliseconds: int = 0
    core_milliseconds: int = 0
    licence_milliseconds: int = 0
    cost: int = 0
    workers: int = 0
    cores: int = 0
    licences: int = 0

    @property
    def hour_cost_millis(self) -> int:
        return _compute_hour_cost(self.price, self.workers, self.cores)

    def add(self, milliseconds: int, workers: int, cores: int, licences: int) -> None:
        self.worker_milliseconds += milliseconds * workers
        self.core_milliseconds += milliseconds * cores
        self.licence_milliseconds += milliseconds * licences
        self.cost += milliseconds * _compute_hour_cost(self.price, workers, cores)

    def advance(self, now: Moment) -> None:
        """Add the use of the running machines since ``until`` to the sums, by the steady clock, and set ``until``."""
        self.add(max(0, now.steady - self.until.steady), self.workers, self.cores, self.licences)
        self.until = now

    def take_over(self, other: _Row) -> None:
        """Move the sums and the running machines of another row to this row. Both rows must have the same ``until``."""
        self.worker_milliseconds += other.worker_milliseconds
        self.core_milliseconds += other.core_milliseconds
        self.licence_milliseconds += other.licence_milliseconds
        self.cost += other.cost
        self.take_over_running(other)

    def take_over_running(self, other: _Row) -> None:
        """Move the numbers of running workers, cores and licence seats of another row to this row."""
        self.workers += other.workers
        self.cores += other.cores
        self.licences += other.licences
        other.workers = other.cores = other.licences = 0


def _compute_hour_cost(price: Cost, workers: int, cores: int) -> int:
    return price.worker_hour_millis * workers + price.core_hour_millis * cores


class Account:
    """Account of one namespace; it continues from the stored rows of the namespace's Usage object.

    The stored rows are complete up to their ``accountedUntil``. So a machine that started earlier counts from that
    time. The owner of the account opens, closes and counts machines only while all machines of their site are known.

    Attributes:
        closed: Machines that ended, with the time; the owner clears the list after it has stored the rows.
    """

    def __init__(self, rows: Sequence[UsageRow], now: Moment) -> None:
        self._rows: dict[RowKey, _Row] = {}
        self._machines: dict[MachineKey, Metered] = {}
        self.closed: list[Closed] = []
        self._counted: dict[tuple[str, str], int] = {}
        for row in rows:
            until = round(row.accounted_until.timestamp() * 1000)
            key = RowKey(row.pool, row.service, row.site, row.currency)
            self._rows[key] = _Row(
                Moment(until, now.steady),
                Cost(currency=row.currency) if row.currency else Cost(),
                row.worker_milliseconds,
                row.core_milliseconds,
                row.licence_milliseconds,
                row.cost_millis * HOUR_MILLISECONDS + row.cost_remainder,
            )
            place = (row.pool, row.site)
            self._counted[place] = max(until, self._counted.get(place, 0))

    def __len__(self) -> int:
        """Return the number of machines that the account counts now."""
        return len(self._machines)

    def __contains__(self, key: MachineKey) -> bool:
        """Return whether the account counts a machine now."""
        return key in self._machines

    def list_machines(self, site: str) -> dict[str, Metered]:
        """Return the machines of a site that the account counts now, by id."""
        return {key.id: machine for key, machine in self._machines.items() if key.site == site}

    def differs(self, rows: Sequence[UsageRow], site: str) -> bool:
        """Return whether the numbers of running machines at a site differ between the given rows and the account."""
        stored = {RowKey(row.pool, row.service, row.site, row.currency): row.workers for row in rows if row.workers}
        counted = {key: row.workers for key, row in self._rows.items() if row.workers}
        return any(stored.get(key) != counted.get(key) for key in stored.keys() | counted.keys() if key.site == site)

    def find_service(self, pool: str, site: str) -> str:
        """Return the service of a pool's newest row at a site; an empty text if there is no such row."""
        known = [
            (row.until.wall, key.service) for key, row in self._rows.items() if (key.pool, key.site) == (pool, site)
        ]
        return max(known, default=(0, ""))[1]

    def open(
        self,
        key: MachineKey,
        machine: Metered,
        price: Cost,
        now: Moment,
        most_milliseconds: int = MAX_CATCH_UP_MILLISECONDS,
    ) -> None:
        """Begin to count a machine.

        The machine counts from its start or from the end of the stored rows, whichever is later. The time before now
        counts for at most ``most_milliseconds``.
        """
        row = self._get_row(machine.row, price, now)
        row.advance(now)
        row.price = price
        row.add(min(self._get_missed_milliseconds(machine, now), most_milliseconds), 1, machine.cores, machine.licences)
        row.workers += 1
        row.cores += machine.cores
        row.licences += machine.licences
        self._machines[key] = machine

    def rebase(
        self, rows: Sequence[UsageRow], price: Callable[[str], Cost], known: Callable[[str], bool], now: Moment
    ) -> Account:
        """Return an account that continues from rows that another process has stored.

        For each machine of this account, the new account adds the time that those rows do not contain yet.

        Args:
            rows: Rows that are stored now.
            price: Function that returns the price of a site.
            known: Function that returns whether all machines of a site are known; only machines of such sites count.
            now: Present time.
        """
        result = Account(rows, now)
        for machine, until in self.closed:
            if not (missed := result._get_missed_milliseconds(machine, until)):
                continue
            row = result._get_row(machine.row, price(machine.row.site), now)
            row.price = price(machine.row.site)
            row.add(missed, 1, machine.cores, machine.licences)
            result.closed.append((machine, until))
            row.until = max(row.until, Moment(until.wall, now.steady), key=lambda moment: moment.wall)
        for key, machine in self._machines.items():
            if known(key.site):
                result.open(key, machine, price(key.site), now)
        return result

    def _get_missed_milliseconds(self, machine: Metered, until: Moment) -> int:
        """Return the milliseconds for which a machine ran up to ``until`` and which the stored rows do not contain."""
        pool, site = machine.row.pool, machine.row.site
        counted = self._counted.get((pool, site), self._counted.get(("", site), 0))
        return min(max(0, until.wall - max(machine.running, counted)), MAX_CATCH_UP_MILLISECONDS)

    def close(self, key: MachineKey, now: Moment | None) -> bool:
        """Count a machine for the last time, and return whether the account had counted it.

        If ``now`` is None, because the site's list of machines was not complete, the machine counts only up to the time
        of its row.
        """
        machine = self._machines.pop(key, None)
        if machine is None:
            return False
        row = self._rows[machine.row]
        if now is not None:
            row.advance(now)
        self.closed.append((machine, row.until))
        row.workers -= 1
        row.cores -= machine.cores
        row.licences -= machine.licences
        return True

    def advance(self, site: str, now: Moment) -> None:
        """Add the use of a site's running machines up to now to the sums."""
        for key, row in self._rows.items():
            if key.site == site and row.workers:
                row.advance(now)

    def reprice(self, site: str, price: Cost) -> None:
        """Apply a site's new price to the time after the ``until`` of its rows; a new currency begins new rows."""
        for key, row in list(self._rows.items()):
            if key.site != site or not row.workers:
                continue
            if key.currency == price.currency:
                row.price = price
            else:
                other = key._replace(currency=price.currency)
                self._get_row(other, price, row.until).take_over_running(row)
                self._rows[other].price = price
                self._rows[other].until = row.until
                self._move_machines(key, other)

    def fold(self, exists: Callable[[str], bool], most: int = MAX_ROWS) -> None:
        """Merge rows of pools into rows without a pool until there are at most ``most`` rows.

        Rows without running machines come first, among them the rows of pools that do not exist any more.

        Args:
            exists: Function that returns whether a pool with the given name exists.
            most: Maximum number of rows.
        """
        if len(self._rows) <= most:
            return

        def order(key: RowKey) -> tuple[bool, bool, int]:
            row = self._rows[key]
            return row.workers > 0, exists(key.pool), row.until.wall

        for key in sorted((key for key in self._rows if key.pool), key=order):
            if len(self._rows) <= most:
                return
            row = self._rows.pop(key)
            folded = key._replace(pool="")
            into = self._get_row(folded, row.price, row.until)
            latest = max(row.until, into.until, key=lambda moment: moment.steady)
            for one in (row, into):
                one.advance(latest)
            into.price = row.price if row.workers else into.price
            moved = row.workers > 0
            into.take_over(row)
            if moved:
                self._move_machines(key, folded)

    def list_rows(self) -> list[UsageRow]:
        """Return the rows in the form of a Usage object, sorted by their keys."""
        return [
            UsageRow(
                **key._asdict(),
                worker_milliseconds=row.worker_milliseconds,
                core_milliseconds=row.core_milliseconds,
                licence_milliseconds=row.licence_milliseconds,
                cost_millis=row.cost // HOUR_MILLISECONDS,
                cost_remainder=row.cost % HOUR_MILLISECONDS,
                accounted_until=from_seconds(row.until.wall / 1000),
                workers=row.workers,
                cores=row.cores,
                licences=row.licences,
                hour_cost_millis=row.hour_cost_millis,
            )
            for key, row in sorted(self._rows.items())
        ]

    def build_status(self) -> UsageStatus:
        """Return the status of a Usage object: the rows and their totals."""
        rows = self.list_rows()
        return UsageStatus(
            workers=sum(row.workers for row in rows),
            accounted_until=max((row.accounted_until for row in rows), default=None),
            rows=rows,
        )

    def _get_row(self, key: RowKey, price: Cost, now: Moment) -> _Row:
        return self._rows.setdefault(key, _Row(now, price))

    def _move_machines(self, old: RowKey, new: RowKey) -> None:
        for key, machine in self._machines.items():
            if machine.row == old:
                self._machines[key] = Metered(new, machine.cores, machine.licences, machine.running)
