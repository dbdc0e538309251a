# SPDX-License-Identifier: Apache-2.0
"""Compare the results with the promised figures. Pure: from runs to verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simyard.api import names
from simyard_bench.results import Run

MAX_LIMIT_RATIO = 2.0
MAX_RSS_MIB = 400.0
MAX_WRITES_PER_WORKER = 4.0
MAX_BOUND_RATIO = 1.05
MAX_GROWTH = 1.25
MAX_IDLE_PERCENT = 5.0
LARGE, MIDDLE = 10_000, 512
OVERHEAD_SECONDS = {40: 1.0, MIDDLE: 1.0, LARGE: 3.0}


@dataclass(frozen=True)
class Verdict:
    """The verdict on one promise; ``met`` is None without a result."""

    figure: str
    required: str
    measured: str
    met: bool | None


def verdicts(runs: Sequence[Run]) -> list[Verdict]:
    """Return the verdicts in the order of the promises.

    For each profile and size, use the run with the largest time scale.
    """
    chosen = {(run.profile, run.n): run for run in sorted(runs, key=lambda run: run.time_scale)}
    large, middle = chosen.get(("instant", LARGE)), chosen.get(("instant", MIDDLE))
    return [
        *_large(large),
        *(verdict for n in OVERHEAD_SECONDS for verdict in _overhead(chosen.get(("cloud4e-2014", n)), n)),
        _bound(chosen.get(("opennebula-2015-default", MIDDLE))),
        _growth(middle, large),
        *_idle(large),
        _scale_in(large),
        *_agreement(runs),
    ]


def _large(run: Run | None) -> Iterator[Verdict]:
    start = f"instant, {LARGE}"
    limit, peer = (run.limit_s, run.peer_s) if run else (None, None)
    if run and limit:
        text = f"{run.t_m_s:.1f} s, {run.t_m_s / limit:.2f} x limit ({limit:.1f} s)"
        yield Verdict(f"{start}: T_m", f"at most {MAX_LIMIT_RATIO} x limit", text, run.t_m_s <= MAX_LIMIT_RATIO * limit)
    else:
        yield missing(f"{start}: T_m", f"at most {MAX_LIMIT_RATIO} x limit")
    if run and peer:
        text = f"{run.t_m_s:.1f} s, peer {peer:.1f} s"
        yield Verdict(f"{start}: T_m", "below peer", text, run.t_m_s < peer)
    else:
        yield missing(f"{start}: T_m", "below peer")
    if run:
        rss, writes = run.operator_rss_mib, run.writes_per_worker
        yield Verdict(f"{start}: memory of the operator", f"at most {MAX_RSS_MIB:.0f} MiB", f"{rss:.0f} MiB",
                      rss <= MAX_RSS_MIB)  # fmt: skip
        yield Verdict(f"{start}: API writes per worker", f"at most {MAX_WRITES_PER_WORKER:.0f}", f"{writes:.2f}",
                      writes <= MAX_WRITES_PER_WORKER)  # fmt: skip
    else:
        yield missing(f"{start}: memory of the operator", f"at most {MAX_RSS_MIB:.0f} MiB")
        yield missing(f"{start}: API writes per worker", f"at most {MAX_WRITES_PER_WORKER:.0f}")


def _overhead(run: Run | None, n: int) -> Iterator[Verdict]:
    most = OVERHEAD_SECONDS[n]
    figures = (
        ("T_r - T_boot", run.t_r_minus_t_boot_s if run else 0.0),
        ("T_m - T_r", run.t_m_minus_t_r_s if run else 0.0),
    )
    for name, seconds in figures:
        figure, required = f"cloud4e-2014, {n}: {name}", f"below {most:.0f} s"
        if run:
            measured = f"{seconds:.2f} s (time scale {run.time_scale:g})"
            yield Verdict(figure, required, measured, seconds < most)
        else:
            yield missing(figure, required)


def _bound(run: Run | None) -> Verdict:
    figure = f"opennebula-2015-default, {MIDDLE}: T_m"
    required = f"at most {MAX_BOUND_RATIO - 1:.0%} above the cloud's own bound"
    if run is None or run.bound_s is None:
        return missing(figure, required)
    over = run.t_m_s / run.bound_s - 1
    measured = f"{run.t_m_s:.1f} s, bound {run.bound_s:.1f} s ({over:+.1%}; time scale {run.time_scale:g})"
    return Verdict(figure, required, measured, run.t_m_s <= MAX_BOUND_RATIO * run.bound_s)


def _growth(middle: Run | None, large: Run | None) -> Verdict:
    figure = f"instant: T_m / N from {MIDDLE} to {LARGE}"
    required = f"grows by at most {MAX_GROWTH - 1:.0%}"
    if middle is None or large is None:
        return missing(figure, required)
    each = [1000 * run.t_m_s / run.n for run in (middle, large)]
    ratio = each[1] / each[0]
    measured = f"{each[0]:.2f} ms to {each[1]:.2f} ms ({ratio - 1:+.0%})"
    return Verdict(figure, required, measured, ratio <= MAX_GROWTH)


def _idle(run: Run | None) -> Iterator[Verdict]:
    figure = f"{LARGE} ready workers, idle"
    idle = run.idle if run else None
    if idle is None:
        yield missing(f"{figure}: API writes", "none")
        yield missing(f"{figure}: CPU of the operator", f"below {MAX_IDLE_PERCENT:.0f} % of a core")
        return
    text = f"{idle.writes} in {idle.seconds:.0f} s ({idle.lease_writes} renewals of the Lease)"
    yield Verdict(f"{figure}: API writes", "none", text, idle.writes == 0)
    percent = idle.operator_cpu_percent
    required = f"below {MAX_IDLE_PERCENT:.0f} % of a core"
    yield Verdict(f"{figure}: CPU of the operator", required, f"{percent:.1f} %", percent < MAX_IDLE_PERCENT)


def _scale_in(run: Run | None) -> Verdict:
    figure, required = f"instant, {LARGE} to 0", "no longer than the start"
    if run is None:
        return missing(figure, required)
    measured = f"{run.scale_in_machines_s:.1f} s until no machine is left, start {run.t_m_s:.1f} s"
    return Verdict(figure, required, measured, run.scale_in_machines_s <= run.t_m_s)


def _agreement(runs: Sequence[Run]) -> Iterator[Verdict]:
    """Compare the number of writes by the API server's metrics with that by the operator's: both must be the same."""
    if runs:
        workers = names.WORKERS.plural
        wrong = [f"{run.profile} {run.n}" for run in runs if run.writes.get(workers) != run.writes_told.get(workers)]
        measured = f"differ in {', '.join(wrong)}" if wrong else f"the same in {len(runs)} runs"
        required = "the API server's count equals the operator's"
        yield Verdict("writes of Workers", required, measured, not wrong)


def missing(figure: str, required: str) -> Verdict:
    """Return the verdict on a promise without a result."""
    return Verdict(figure, required, "not measured", None)
