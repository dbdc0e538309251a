# SPDX-License-Identifier: Apache-2.0
"""Sequences are functions of seed, axis and index; scipy is the oracle of the unscrambled ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import qmc

from simyard.plan.studies import sequences

SEEDS = st.integers(0, 2**31 - 1)
AXES = st.integers(0, sequences.MAX_AXES - 1)
DRAWS = (
    sequences.draw_uniform,
    sequences.draw_halton,
    sequences.draw_sobol,
    lambda seed, axis, index: sequences.draw_stratified(seed, axis, index, 10_000_000),
)


def test_the_sobol_sequence_is_that_of_scipy() -> None:
    expected = qmc.Sobol(sequences.MAX_AXES, scramble=False, bits=sequences.SOBOL_BITS).random(1024)
    computed = [
        [sequences.compute_sobol(axis, i) * 2.0**-32 for axis in range(sequences.MAX_AXES)] for i in range(1024)
    ]
    assert computed == expected.tolist()


def test_the_radical_inverse_is_the_halton_sequence_of_scipy() -> None:
    expected = qmc.Halton(sequences.MAX_AXES, scramble=False).random(256)
    for axis in range(sequences.MAX_AXES):
        pairs = [sequences.invert_radix(sequences.PRIMES[axis], index) for index in range(256)]
        assert [above / below for above, below in pairs] == pytest.approx(expected[:, axis].tolist(), abs=1e-15)


@given(SEEDS, AXES, st.integers(0, 9_999_999))
def test_each_coordinate_lies_in_the_unit_interval(seed: int, axis: int, index: int) -> None:
    for draw in DRAWS:
        assert 0.0 <= draw(seed, axis, index) < 1.0


@given(SEEDS, st.integers(1, 700))
def test_a_permutation_uses_each_place_once(key: int, count: int) -> None:
    assert sorted(sequences.permute(key, index, count) for index in range(count)) == list(range(count))


@given(SEEDS, AXES, st.integers(1, 300))
def test_a_latin_hypercube_hits_each_part_of_an_axis_once(seed: int, axis: int, count: int) -> None:
    parts = [int(sequences.draw_stratified(seed, axis, index, count) * count) for index in range(count)]
    assert sorted(parts) == list(range(count))


@given(SEEDS, AXES, st.integers(0, 9))
def test_a_shifted_sobol_sequence_hits_each_part_of_an_axis_once(seed: int, axis: int, power: int) -> None:
    count = 2**power
    parts = [int(sequences.draw_sobol(seed, axis, index) * count) for index in range(count)]
    assert sorted(parts) == list(range(count))


@pytest.mark.parametrize("discrepant", [sequences.draw_sobol, sequences.draw_halton])
def test_a_low_discrepancy_sequence_is_more_even_than_random_points(discrepant) -> None:
    def discrepancy(draw) -> float:
        return float(qmc.discrepancy([[draw(1, axis, index) for axis in range(3)] for index in range(512)]))

    assert discrepancy(discrepant) < 0.2 * discrepancy(sequences.draw_uniform)


def test_points_stay_the_same_in_all_versions() -> None:
    """A study continues after an upgrade of the platform: these values must never change."""
    assert [draw(7, 2, 12_345) for draw in DRAWS] == FIXED
    assert all(draw(8, 2, 12_345) != draw(7, 2, 12_345) for draw in DRAWS)


FIXED = [0.23102744101237171, 0.8394679804177198, 0.05273325531743467, 0.6600903231027441]
