"""What machines have used and cost: counted from when each runs until it is gone.

The account of a namespace holds, for each row, sums that are true up to a time, and how many workers, cores and licence
seats run since. So a machine that starts or ends costs one step, however many others there are, and so does a row when
it is brought up to the present.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simyard.api.base import from_seconds
from simyard.api.cloud_site import Cost
from simyard.api.usage import HOUR_MILLISECONDS, MOST_ROWS, UsageRow, UsageStatus

MOST_CATCH_UP_MILLISECONDS = 7 * 24 * HOUR_MILLISECONDS
"""Most that is counted at once for a time in which nobody counted: a clock that is far off must not cost a fortune."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Now, in milliseconds, by the clock on the wall (since the epoch; it may jump) and by a steady one."""

    wall: int
    steady: int


class RowKey(NamedTuple):
    """What a row is of."""

    pool: str
    service: str
    site: str
    currency: str


class MachineKey(NamedTuple):
    """A machine: ids are a site's own."""

    site: str
    id: str


@dataclass(frozen=True, slots=True)
class Metered:
    """A machine that runs: its row, its size, and since when it runs (milliseconds since the epoch)."""

    row: RowKey
    cores: int
    licences: int
    running: int


Closed = tuple[Metered, Moment]


@dataclass(slots=True)
class _Row:
    """Sums up to ``until``, and what runs since. ``cost`` is exact: in 3,600,000ths of a thousandth of the currency."""

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
        return _hour_cost(self.price, self.workers, self.cores)

    def add(self, milliseconds: int, workers: int, cores: int, licences: int) -> None:
        self.worker_milliseconds += milliseconds * workers
        self.core_milliseconds += milliseconds * cores
        self.licence_milliseconds += milliseconds * licences
        self.cost += milliseconds * _hour_cost(self.price, workers, cores)

    def advance(self, now: Moment) -> None:
        """Count what runs up to now. The steady clock says how long that was."""
        self.add(max(0, now.steady - self.until.steady), self.workers, self.cores, self.licences)
        self.until = now

    def take_over(self, other: _Row) -> None:
        """Take over the sums of another row, and what runs there; both are true up to the same time."""
        self.worker_milliseconds += other.worker_milliseconds
        self.core_milliseconds += other.core_milliseconds
        self.licence_milliseconds += other.licence_milliseconds
        self.cost += other.cost
        self.run_as_well(other)

    def run_as_well(self, other: _Row) -> None:
        """Take over what runs in another row."""
        self.workers += other.workers
        self.cores += other.cores
        self.licences += other.licences
        other.workers = other.cores = other.licences = 0


def _hour_cost(price: Cost, workers: int, cores: int) -> int:
    return price.worker_hour_millis * workers + price.core_hour_millis * cores


class Account:
    """The usage of one namespace, from what its ledger said when it was read.

    What the ledger says up to its ``accountedUntil`` was counted by whoever wrote it: a machine that runs longer than
    that is counted from there. Machines are opened, closed and counted only while all machines of their site are known.

    Attributes:
        closed: the machines that ended, and when; whoever stores the rows may forget them.
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
        """How many machines are counted."""
        return len(self._machines)

    def __contains__(self, key: MachineKey) -> bool:
        """Whether a machine is counted."""
        return key in self._machines

    def machines(self, site: str) -> dict[str, Metered]:
        """The machines that are counted at a site, by id."""
        return {key.id: machine for key, machine in self._machines.items() if key.site == site}

    def differs(self, rows: Sequence[UsageRow], site: str) -> bool:
        """Whether rows say otherwise than the account how many machines run at a site, row by row."""
        stored = {RowKey(row.pool, row.service, row.site, row.currency): row.workers for row in rows if row.workers}
        counted = {key: row.workers for key, row in self._rows.items() if row.workers}
        return any(stored.get(key) != counted.get(key) for key in stored.keys() | counted.keys() if key.site == site)

    def service_of(self, pool: str, site: str) -> str:
        """The service whose workers the pool last had at a site, as far as the rows say; else empty."""
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
        most_milliseconds: int = MOST_CATCH_UP_MILLISECONDS,
    ) -> None:
        """Count a machine that is not counted yet.

        It is counted from when it ran, or from where the ledger ends, but for no longer than ``most`` before now.
        """
        row = self._row(machine.row, price, now)
        row.advance(now)
        row.price = price
        row.add(min(self._missed(machine, now), most_milliseconds), 1, machine.cores, machine.licences)
        row.workers += 1
        row.cores += machine.cores
        row.licences += machine.licences
        self._machines[key] = machine

    def rebased(
        self, rows: Sequence[UsageRow], price: Callable[[str], Cost], known: Callable[[str], bool], now: Moment
    ) -> Account:
        """The account that goes on from rows that somebody else wrote meanwhile.

        Of each machine that was seen here, it counts what those rows do not have yet.

        Args:
            rows: what the ledger says now.
            price: the price of a site.
            known: whether all machines of a site are known; those of others are counted when they are.
            now: the time.
        """
        result = Account(rows, now)
        for machine, until in self.closed:
            if not (missed := result._missed(machine, until)):
                continue
            row = result._row(machine.row, price(machine.row.site), now)
            row.price = price(machine.row.site)
            row.add(missed, 1, machine.cores, machine.licences)
            result.closed.append((machine, until))
            row.until = max(row.until, Moment(until.wall, now.steady), key=lambda moment: moment.wall)
        for key, machine in self._machines.items():
            if known(key.site):
                result.open(key, machine, price(key.site), now)
        return result

    def _missed(self, machine: Metered, until: Moment) -> int:
        """For how long a machine ran that the ledger does not have."""
        pool, site = machine.row.pool, machine.row.site
        counted = self._counted.get((pool, site), self._counted.get(("", site), 0))
        return min(max(0, until.wall - max(machine.running, counted)), MOST_CATCH_UP_MILLISECONDS)

    def close(self, key: MachineKey, now: Moment | None) -> bool:
        """Count a machine no longer; whether it was counted.

        Without ``now``, its site was not known to be complete lately: it is counted as far as the row is.
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
        """Count what runs at a site up to now."""
        for key, row in self._rows.items():
            if key.site == site and row.workers:
                row.advance(now)

    def reprice(self, site: str, price: Cost) -> None:
        """From where its rows end, a site has another price; another currency makes other rows."""
        for key, row in list(self._rows.items()):
            if key.site != site or not row.workers:
                continue
            if key.currency == price.currency:
                row.price = price
            else:
                other = key._replace(currency=price.currency)
                self._row(other, price, row.until).run_as_well(row)
                self._rows[other].price = price
                self._rows[other].until = row.until
                self._move(key, other)

    def fold(self, exists: Callable[[str], bool], most: int = MOST_ROWS) -> None:
        """Where there are too many rows, add up those of old pools: first of those that do not exist any more.

        Args:
            exists: whether there is a pool of that name.
            most: how many rows there may be.
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
            into = self._row(folded, row.price, row.until)
            latest = max(row.until, into.until, key=lambda moment: moment.steady)
            for one in (row, into):
                one.advance(latest)
            into.price = row.price if row.workers else into.price
            moved = row.workers > 0
            into.take_over(row)
            if moved:
                self._move(key, folded)

    def rows(self) -> list[UsageRow]:
        """The rows as a ledger has them, in order."""
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

    def status(self) -> UsageStatus:
        """The rows, and what they say together."""
        rows = self.rows()
        return UsageStatus(
            workers=sum(row.workers for row in rows),
            accounted_until=max((row.accounted_until for row in rows), default=None),
            rows=rows,
        )

    def _row(self, key: RowKey, price: Cost, now: Moment) -> _Row:
        return self._rows.setdefault(key, _Row(now, price))

    def _move(self, old: RowKey, new: RowKey) -> None:
        for key, machine in self._machines.items():
            if machine.row == old:
                self._machines[key] = Metered(new, machine.cores, machine.licences, machine.running)
