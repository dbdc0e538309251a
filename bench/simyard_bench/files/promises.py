# SPDX-License-Identifier: Apache-2.0
"""Compare the results of transfers with the promised figures. Pure: from rows to verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from simyard_bench.check import Verdict, missing
from simyard_bench.files.rows import MIB, Case, Row, Way, find

MIN_RATE_RATIO = 0.8
MAX_MORE_ROUND_TRIPS = 2
MAX_ADAPTER_MIB = 40
PART = 64 * MIB
"""Maximum size of a file that a client sends in one request."""
LARGE = 10**10
NAMES = {Way.BARE: "bare client", Way.USER: "cp", Way.WORKER: "worker"}
_TRANSFERS = [(case, way) for case in (Case.UPLOAD, Case.DOWNLOAD) for way in (Way.USER, Way.WORKER)]


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdicts in the order of the promises."""
    return [
        *(_rate(rows, case, way) for case, way in _TRANSFERS),
        *(_round_trips(rows, case, way) for case, way in _TRANSFERS),
        _memory(rows),
        _downloads(rows),
    ]


def _pairs(rows: Sequence[Row], case: Case, way: Way) -> list[tuple[Row, Row]]:
    """Return pairs of rows with the same size: of ``way``, and of the bare client."""
    return [
        (row, bare)
        for row in rows
        if (row.case, row.way) == (case, way) and (bare := find(rows, case, Way.BARE, row.size)) is not None
    ]


def _rate(rows: Sequence[Row], case: Case, way: Way) -> Verdict:
    figure = f"{case} by {NAMES[way]}: rate above 64 MiB"
    required = f"at least {MIN_RATE_RATIO:g} x that of a bare client"
    pairs = [pair for pair in _pairs(rows, case, way) if pair[0].size > PART]
    if not pairs:
        return missing(figure, required)
    worst = min(ours.rate / bare.rate for ours, bare in pairs)
    each = ", ".join(
        f"{ours.rate / bare.rate:.2f} x {bare.rate:.0f} MiB/s ({ours.size // MIB} MiB)" for ours, bare in pairs
    )
    return Verdict(figure, required, each, worst >= MIN_RATE_RATIO)


def _round_trips(rows: Sequence[Row], case: Case, way: Way) -> Verdict:
    figure = f"{case} by {NAMES[way]}: round trips up to 64 MiB"
    required = f"at most {MAX_MORE_ROUND_TRIPS} more than a bare client"
    pairs = [pair for pair in _pairs(rows, case, way) if pair[0].size <= PART]
    if not pairs:
        return missing(figure, required)
    ours, bare = max(pairs, key=lambda pair: pair[0].round_trips - pair[1].round_trips)
    measured = f"{ours.round_trips:g}, bare client {bare.round_trips:g}"
    return Verdict(figure, required, measured, ours.round_trips - bare.round_trips <= MAX_MORE_ROUND_TRIPS)


def _memory(rows: Sequence[Row]) -> Verdict:
    figure, required = "worker, 10 GB up and down: memory of the adapter", f"at most {MAX_ADAPTER_MIB} MiB"
    found = [row for case in (Case.UPLOAD, Case.DOWNLOAD) if (row := find(rows, case, Way.WORKER, LARGE)) is not None]
    if not found:
        return missing(figure, required)
    peak = max(row.rss_mib for row in found)
    return Verdict(figure, required, f"{peak:.0f} MiB", peak <= MAX_ADAPTER_MIB)


def _downloads(rows: Sequence[Row]) -> Verdict:
    figure, required = "actions that share an input: downloads of it", "one for each worker"
    row = next((row for row in rows if row.case is Case.SHARED), None)
    if row is None or row.downloads is None:
        return missing(figure, required)
    measured = f"{row.downloads} for {row.files} actions of {row.workers} workers"
    return Verdict(figure, required, measured, row.downloads <= row.workers)
