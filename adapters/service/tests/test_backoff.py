# SPDX-License-Identifier: Apache-2.0
"""The delay between retries doubles up to its maximum, and the random factor only shortens it."""

from hypothesis import given
from hypothesis import strategies as st

from simyard_adapter.backoff import compute_delay, draw_delay

retries = st.integers(0, 10_000)
seconds = st.floats(0.001, 1000)


def test_the_delay_doubles_up_to_the_maximum() -> None:
    assert [compute_delay(number, 0.5, 3.0) for number in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


@given(retries, seconds, seconds)
def test_a_drawn_delay_is_between_half_and_all_of_the_delay(number: int, first: float, maximum: float) -> None:
    whole = compute_delay(number, first, maximum)
    assert whole <= maximum
    assert whole / 2 <= draw_delay(number, maximum, first) <= whole
