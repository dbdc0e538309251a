# SPDX-License-Identifier: Apache-2.0
"""Account of the use and cost of machines, each counted from its start until it is gone.

Each row of a namespace's account holds sums up to a time, and the numbers of workers, cores and licence seats that run
since then. The start or the end of a machine, and the update of a row to the present, therefore cost one step each, for
any number of machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simyard.api.base import from_seconds
from simyard.api.cloud_site import Cost
from simyard.api.usage import HOUR_MILLISECONDS, MAX_ROWS, UsageRow, UsageStatus

MAX_CATCH_UP_MILLISECONDS = 7 * 24 * HOUR_MILLISECONDS
"""Maximum time that is counted at once for a period without an operator: a wrong clock must not cost a fortune."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Present time in milliseconds, by the wall clock (since the epoch; it may jump) and by a steady clock."""

    wall: int
    steady: int


class RowKey(NamedTuple):
    """Key of a row."""

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
    """Running machine: its row, its size, and the time of its start (``running``, milliseconds since the epoch)."""

    row: RowKey
    cores: int
    licences: int
    running: int


Closed = tuple[Metered, Moment]


@dataclass(slots=True)
class _Row:
    """Sums up to ``until``, and the size of the machines that run since then.

    ``cost`` is exact, in 3,600,000ths of a thousandth of the currency.
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
        """Count the running machines up to now; the steady clock gives the elapsed time."""
        self.add(max(0, now.steady - self.until.steady), self.workers, self.cores, self.licences)
        self.until = now

    def take_over(self, other: _Row) -> None:
        """Move the sums and running machines of another row to this row; both must be counted up to the same time."""
        self.worker_milliseconds += other.worker_milliseconds
        self.core_milliseconds += other.core_milliseconds
        self.licence_milliseconds += other.licence_milliseconds
        self.cost += other.cost
        self.take_over_running(other)

    def take_over_running(self, other: _Row) -> None:
        """Move the running machines of another row to this row."""
        self.workers += other.workers
        self.cores += other.cores
        self.licences += other.licences
        other.workers = other.cores = other.licences = 0


def _compute_hour_cost(price: Cost, workers: int, cores: int) -> int:
    return price.worker_hour_millis * workers + price.core_hour_millis * cores


class Account:
    """Account of one namespace, which begins with the stored rows of its Usage object.

    The stored rows are complete up to their ``accountedUntil``: a machine that started earlier is counted from there.
    Machines are opened, closed and counted only while all machines of their site are known.

    Attributes:
        closed: Machines that ended, with the time; the owner clears the list when the rows are stored.
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
        """Return the number of counted machines."""
        return len(self._machines)

    def __contains__(self, key: MachineKey) -> bool:
        """Return whether a machine is counted."""
        return key in self._machines

    def list_machines(self, site: str) -> dict[str, Metered]:
        """Return the counted machines of a site, by id."""
        return {key.id: machine for key, machine in self._machines.items() if key.site == site}

    def differs(self, rows: Sequence[UsageRow], site: str) -> bool:
        """Return whether the rows have other numbers of running machines at a site than the account."""
        stored = {RowKey(row.pool, row.service, row.site, row.currency): row.workers for row in rows if row.workers}
        counted = {key: row.workers for key, row in self._rows.items() if row.workers}
        return any(stored.get(key) != counted.get(key) for key in stored.keys() | counted.keys() if key.site == site)

    def find_service(self, pool: str, site: str) -> str:
        """Return the service that a pool last ran at a site, according to the rows; else an empty text."""
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
        """Count a machine that is not counted yet.

        It is counted from its start, or from the end of the stored rows, but for at most ``most_milliseconds`` before
        now.
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
        """Return an account that continues from rows which another process has written meanwhile.

        For each machine of this account, the new account adds the time that those rows do not contain yet.

        Args:
            rows: Rows that are stored now.
            price: Function that returns the price of a site.
            known: Function that returns whether all machines of a site are known; only such sites are counted.
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
        """Return the time for which a machine ran that the stored rows do not contain."""
        pool, site = machine.row.pool, machine.row.site
        counted = self._counted.get((pool, site), self._counted.get(("", site), 0))
        return min(max(0, until.wall - max(machine.running, counted)), MAX_CATCH_UP_MILLISECONDS)

    def close(self, key: MachineKey, now: Moment | None) -> bool:
        """Count a machine for the last time, and return whether it was counted until now.

        Without ``now`` it is counted up to the time of its row, because the site's list of machines was not complete.
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
        """Count the running machines of a site up to now."""
        for key, row in self._rows.items():
            if key.site == site and row.workers:
                row.advance(now)

    def reprice(self, site: str, price: Cost) -> None:
        """Apply a new price of a site from the end of its rows on; a new currency begins new rows."""
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
        """Merge rows of old pools if there are too many rows, first the rows of pools that do not exist any more.

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
        """Return the rows in the form of a Usage object, in order."""
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
