"""The promised figures, and whether the results meet them. Pure: from runs to verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simyard.api import names
from simyard_bench.results import Run

MOST_LIMITS = 2.0
MOST_RSS_MIB = 400.0
MOST_WRITES = 4.0
MOST_OVER_BOUND = 1.05
MOST_GROWTH = 1.25
MOST_IDLE_PERCENT = 5.0
LARGE, MIDDLE = 10_000, 512
OVERHEAD_SECONDS = {40: 1.0, MIDDLE: 1.0, LARGE: 3.0}


@dataclass(frozen=True)
class Verdict:
    """One promise: ``met`` is None when there is no result to tell by."""

    figure: str
    required: str
    measured: str
    met: bool | None


def verdicts(runs: Sequence[Run]) -> list[Verdict]:
    """All promises, in the order in which they were given; of several time scales the slowest emulation counts."""
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
        yield Verdict(f"{start}: T_m", f"at most {MOST_LIMITS} x limit", text, run.t_m_s <= MOST_LIMITS * limit)
    else:
        yield missing(f"{start}: T_m", f"at most {MOST_LIMITS} x limit")
    if run and peer:
        text = f"{run.t_m_s:.1f} s, peer {peer:.1f} s"
        yield Verdict(f"{start}: T_m", "below peer", text, run.t_m_s < peer)
    else:
        yield missing(f"{start}: T_m", "below peer")
    if run:
        rss, writes = run.operator_rss_mib, run.writes_per_worker
        yield Verdict(f"{start}: memory of the operator", f"at most {MOST_RSS_MIB:.0f} MiB", f"{rss:.0f} MiB",
                      rss <= MOST_RSS_MIB)  # fmt: skip
        yield Verdict(f"{start}: API writes per worker", f"at most {MOST_WRITES:.0f}", f"{writes:.2f}",
                      writes <= MOST_WRITES)  # fmt: skip
    else:
        yield missing(f"{start}: memory of the operator", f"at most {MOST_RSS_MIB:.0f} MiB")
        yield missing(f"{start}: API writes per worker", f"at most {MOST_WRITES:.0f}")


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
    required = f"at most {MOST_OVER_BOUND - 1:.0%} above the cloud's own bound"
    if run is None or run.bound_s is None:
        return missing(figure, required)
    over = run.t_m_s / run.bound_s - 1
    measured = f"{run.t_m_s:.1f} s, bound {run.bound_s:.1f} s ({over:+.1%}; time scale {run.time_scale:g})"
    return Verdict(figure, required, measured, run.t_m_s <= MOST_OVER_BOUND * run.bound_s)


def _growth(middle: Run | None, large: Run | None) -> Verdict:
    figure = f"instant: T_m / N from {MIDDLE} to {LARGE}"
    required = f"grows by at most {MOST_GROWTH - 1:.0%}"
    if middle is None or large is None:
        return missing(figure, required)
    each = [1000 * run.t_m_s / run.n for run in (middle, large)]
    ratio = each[1] / each[0]
    measured = f"{each[0]:.2f} ms to {each[1]:.2f} ms ({ratio - 1:+.0%})"
    return Verdict(figure, required, measured, ratio <= MOST_GROWTH)


def _idle(run: Run | None) -> Iterator[Verdict]:
    figure = f"{LARGE} ready workers, idle"
    idle = run.idle if run else None
    if idle is None:
        yield missing(f"{figure}: API writes", "none")
        yield missing(f"{figure}: CPU of the operator", f"below {MOST_IDLE_PERCENT:.0f} % of a core")
        return
    text = f"{idle.writes} in {idle.seconds:.0f} s ({idle.lease_writes} renewals of the Lease)"
    yield Verdict(f"{figure}: API writes", "none", text, idle.writes == 0)
    percent = idle.operator_cpu_percent
    required = f"below {MOST_IDLE_PERCENT:.0f} % of a core"
    yield Verdict(f"{figure}: CPU of the operator", required, f"{percent:.1f} %", percent < MOST_IDLE_PERCENT)


def _scale_in(run: Run | None) -> Verdict:
    figure, required = f"instant, {LARGE} to 0", "no longer than the start"
    if run is None:
        return missing(figure, required)
    measured = f"{run.scale_in_machines_s:.1f} s until no machine is left, start {run.t_m_s:.1f} s"
    return Verdict(figure, required, measured, run.scale_in_machines_s <= run.t_m_s)


def _agreement(runs: Sequence[Run]) -> Iterator[Verdict]:
    """Both counts of writes must say the same, or neither is worth much."""
    if runs:
        workers = names.WORKERS.plural
        wrong = [f"{run.profile} {run.n}" for run in runs if run.writes.get(workers) != run.writes_told.get(workers)]
        measured = f"differ in {', '.join(wrong)}" if wrong else f"the same in {len(runs)} runs"
        required = "the API server's count equals the operator's"
        yield Verdict("writes of Workers", required, measured, not wrong)


def missing(figure: str, required: str) -> Verdict:
    """There is no result to tell by."""
    return Verdict(figure, required, "not measured", None)
