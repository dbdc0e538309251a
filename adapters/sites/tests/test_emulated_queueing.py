# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simyard_dev.providers import make_emulated_settings
from simyard_sites.base import ThrottledError
from simyard_sites.emulated.queueing import Front, Rate, Servers

ARRIVALS = st.lists(st.integers(0, 50), min_size=1, max_size=40).map(sorted)


@given(ARRIVALS, st.integers(1, 4), st.integers(1, 9))
def test_no_more_are_served_at_once_than_there_are_servers_and_none_idles_while_somebody_waits(
    arrivals: list[int], count: int, each: int
) -> None:
    servers = Servers()
    served = []
    for now in arrivals:
        begin = servers.free_at(count, now)
        servers.occupy(begin + each)
        served.append((begin, begin + each))
    for now, (begin, _) in zip(arrivals, served, strict=True):
        busy = sum(other <= begin < end for other, end in served)
        assert busy <= count
        if begin > now:
            assert sum(other < begin <= end for other, end in served) == count


@given(ARRIVALS, st.integers(0, 10), st.integers(1, 5))
def test_a_rate_lets_no_more_through_in_any_time_than_its_burst_and_what_came_meanwhile(
    arrivals: list[int], burst: int, tokens: int
) -> None:
    rate = Rate()
    done = [rate.reserve(tokens, burst, 1.0, now) for now in arrivals]
    assert done == sorted(done)
    for first in range(len(done)):
        for last in range(first, len(done)):
            taken = (last - first + 1) * tokens
            since = done[first] if first == 0 else max(arrivals[first], done[first - 1])
            assert taken <= burst + tokens + (done[last] - since) + 1e-9


def test_a_front_end_serves_calls_one_after_the_other_each_with_its_own_time_and_that_of_its_items() -> None:
    settings = make_emulated_settings(call_milliseconds=1000, item_milliseconds=100)
    front = Front()
    assert front.serve(2, settings, 10.0) == pytest.approx([11.1, 11.2])
    assert front.serve(1, settings, 10.0) == pytest.approx([12.3])
    assert front.serve(1, settings, 20.0) == pytest.approx([21.1])


def test_a_front_end_without_times_serves_at_once() -> None:
    assert Front().serve(3, make_emulated_settings(), 10.0) == [10.0] * 3


def test_a_front_end_refuses_more_calls_at_once_than_it_takes_and_says_when_to_come_again_if_it_is_to() -> None:
    settings = make_emulated_settings(calls_in_flight=1)
    front = Front()
    front.begin(settings)
    with pytest.raises(ThrottledError) as silent:
        front.begin(settings)
    with pytest.raises(ThrottledError) as telling:
        front.begin(make_emulated_settings(calls_in_flight=1, retry_after_milliseconds=500, time_scale_percent=10))
    assert (silent.value.retry_after_seconds, telling.value.retry_after_seconds) == (None, 0.05)
    front.end()
    front.begin(settings)


@given(st.integers(1, 20), st.integers(1, 10), st.integers(1, 100))
def test_a_front_end_admits_its_burst_at_once_and_then_its_rate(rate: int, burst: int, percent: int) -> None:
    settings = make_emulated_settings(creates_per_second=rate, create_burst=burst, time_scale_percent=percent)
    front = Front()
    assert [front.admit(settings, 5.0) for _ in range(burst + 3)] == [True] * burst + [False] * 3
    later = 5.0 + 1.001 * percent / 100 / rate
    assert [front.admit(settings, later) for _ in range(2)] == [True, False]
