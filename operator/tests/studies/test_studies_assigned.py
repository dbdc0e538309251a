# SPDX-License-Identifier: Apache-2.0
"""The indexes of the chunks that workers have."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from simyard.fleet.studies.assigned import Assigned, Flight

STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "sent", "unsent"]), st.integers(0, 6), st.integers(0, 2)), max_size=40
)


@given(STEPS)
def test_every_index_tells_what_a_scan_of_all_flights_would(steps: list[tuple[str, int, int]]) -> None:
    loads: Counter[str] = Counter()
    assigned, flights, sent = Assigned(loads), dict[int, Flight](), dict[int, float]()
    for now, (step, chunk, worker) in enumerate(steps):
        flight = flights.get(chunk)
        if step == "add" and flight is None:
            flights[chunk] = Flight(chunk, 1, f"w{worker}")
            assigned.add(flights[chunk])
        elif step == "remove":
            assert assigned.remove(chunk) is flights.pop(chunk, None)
            sent.pop(chunk, None)
        elif step == "sent" and flight is not None:
            assigned.mark_sent(flight, now)
            sent[chunk] = now
        elif step == "unsent" and flight is not None:
            assigned.mark_unsent(flight)
            sent.pop(chunk, None)
    counts = Counter(flight.worker_uid for flight in flights.values())
    assert loads == counts
    assert {uid: assigned.count(uid) for uid in counts} == counts
    assert (len(assigned), assigned.workers) == (len(flights), len(counts))
    assert {flight.chunk for uid in counts for flight in assigned.list_of(uid)} == set(flights)
    assert {flight.chunk for flight in assigned.list_unsent()} == set(flights) - set(sent)
    assert assigned.get_first_sent() == min(sent.values(), default=None)
    half = len(steps) / 2
    assert [it.chunk for it in assigned.list_sent_before(half)] == sorted(
        (chunk for chunk, time in sent.items() if time <= half), key=sent.__getitem__
    )
    assigned.clear()
    assert not loads


def test_a_flight_that_ended_while_it_was_sent_is_not_sent_again() -> None:
    assigned, flight = Assigned(Counter()), Flight(1, 1, "w")
    assigned.add(flight)
    assigned.remove(1)
    assigned.mark_sent(flight, 5.0)
    assert assigned.get_first_sent() is None
