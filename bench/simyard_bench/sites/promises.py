# SPDX-License-Identifier: Apache-2.0
"""Compare the results of sites with the promised figures. Pure: from rows to verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simyard_bench.check import Verdict, missing
from simyard_bench.sites.rows import Row

VMIS = (100, 1000)
"""Two numbers of machines; the difference of their writes gives the writes of one machine."""
CONTROLLED_VMIS = 200
PODS = 500
VMS = 512
KNOWN = 10_000
FINISHED = (600, 25_600)
MAX_RATIO = 1.15
MAX_CONTROLLED_RATIO = 1.1
MAX_WRITES_PER_WORKER = 1.0
MIN_RATE_RATIO = 1.25
"""The required ratio to pyone: a real oned 7.4 created 51 VMs a second by sequential multicalls, and 39 for pyone."""
MAX_STOCK_RATIO = 1.02
"""The permitted ratio to pyone with the stock scheduler, which limits both starts; both clients poll twice a second."""
MAX_CPU_RATIO = 1 / 3
MAX_GROWTH = 1.1


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdicts in the order of the promises."""
    return [
        _times(rows, "kubevirt", "start", VMIS[1], "VMIs until all run", "a bare client's"),
        _times(
            rows,
            "kubevirt",
            "start-controllers",
            CONTROLLED_VMIS,
            "VMIs at KubeVirt's controllers",
            "a ReplicaSet's",
            MAX_CONTROLLED_RATIO,
        ),
        _writes(rows),
        _wide(rows),
        _times(rows, "openNebula", "start-stock", VMS, "VMs, stock scheduler", "pyone's", MAX_STOCK_RATIO),
        _cpu(rows),
        *(_growth(rows, case) for case in ("poll", "sweep")),
        _times(rows, "pod", "start", PODS, "pods until all run", "a Deployment's"),
    ]


def find(rows: Sequence[Row], site: str, case: str, n: int | None = None, finished: int = 0) -> Row | None:
    """Return the row of a case with ``n`` machines; without ``n``, the row of any size."""
    return next(
        (row for row in rows if (row.site, row.case, row.finished) == (site, case, finished) and n in (None, row.n)),
        None,
    )


def _times(
    rows: Sequence[Row], site: str, case: str, n: int, what: str, whose: str, most: float = MAX_RATIO
) -> Verdict:
    figure, required = f"{site}: {n} {what}", f"at most {most:g} x {whose} time"
    row = find(rows, site, case, n)
    if row is None or not row.yardstick_s:
        return missing(figure, required)
    ratio = row.ours_s / row.yardstick_s
    return Verdict(figure, required, f"{row.ours_s:.2f} s, {ratio:.2f} x {row.yardstick_s:.2f} s", ratio <= most)


def _writes(rows: Sequence[Row]) -> Verdict:
    """Return the verdict on the writes per machine, without the writes that occur once per pool."""
    figure, required = (
        "kubevirt: API writes for each VMI",
        f"at most {MAX_WRITES_PER_WORKER:g}, and some for all together",
    )
    small, large = (find(rows, "kubevirt", "start", n) for n in VMIS)
    if small is None or large is None:
        return missing(figure, required)
    each = (_total(large) - _total(small)) / (large.n - small.n)
    rest = _total(large) - each * large.n
    return Verdict(figure, required, f"{each:.3f}, and {rest:.0f} for all together", each <= MAX_WRITES_PER_WORKER)


def _total(row: Row) -> int:
    return sum(sum(verbs.values()) for verbs in row.writes.values())


def _wide(rows: Sequence[Row]) -> Verdict:
    figure = f"openNebula: rate of {VMS} VMs, scheduler without limits"
    required = f"at least {MIN_RATE_RATIO:g} x that of pyone's loop"
    row = find(rows, "openNebula", "start-wide", VMS)
    if row is None or not row.yardstick_s:
        return missing(figure, required)
    ratio = row.yardstick_s / row.ours_s
    measured = f"{row.n / row.ours_s:.1f} a second, {ratio:.2f} x {row.n / row.yardstick_s:.1f}"
    return Verdict(figure, required, measured, ratio >= MIN_RATE_RATIO)


def _cpu(rows: Sequence[Row]) -> Verdict:
    figure, required = f"openNebula: CPU of a poll of {KNOWN} VMs", "at most a third of pyone's"
    row = find(rows, "openNebula", "poll", KNOWN)
    if row is None or not row.yardstick_cpu_s:
        return missing(figure, required)
    ratio = row.cpu_s / row.yardstick_cpu_s
    return Verdict(
        figure, required, f"{row.cpu_s:.2f} s, {ratio:.2f} x {row.yardstick_cpu_s:.2f} s", ratio <= MAX_CPU_RATIO
    )


def _growth(rows: Sequence[Row], case: str) -> Verdict:
    """Return the verdict on the largest growth of CPU time of the client, calls, and their cost for the server."""
    few, many = FINISHED
    figure = f"openNebula: {case} beside {many} finished VMs"
    required = f"at most {MAX_GROWTH - 1:.0%} above that beside {few}"
    small, large = (find(rows, "openNebula", case, finished=count) for count in FINISHED)
    if small is None or large is None or not small.server_ms or not large.server_ms:
        return missing(figure, required)
    ratios = dict(_ratios(small, large, small.server_ms, large.server_ms))
    measured = ", ".join(f"{name} {ratio - 1:+.1%}" for name, ratio in ratios.items())
    return Verdict(figure, required, measured, max(ratios.values()) <= MAX_GROWTH)


def _ratios(small: Row, large: Row, small_ms: float, large_ms: float) -> Iterator[tuple[str, float]]:
    yield "CPU", large.cpu_s / small.cpu_s
    yield "calls", sum(large.calls.values()) / sum(small.calls.values())
    yield "oned (modelled)", large_ms / small_ms
