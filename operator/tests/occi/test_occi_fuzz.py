# SPDX-License-Identifier: Apache-2.0
"""The stored corpus and random changes of it violate no invariant (``make fuzz-occi`` searches for longer)."""

from __future__ import annotations

import random

from hypothesis import example, given
from hypothesis import strategies as st
from occi_fuzzing import FUZZER, WORDS, exercise

from simyard_dev.fuzzing import minimise


def test_the_corpus_breaks_no_promise() -> None:
    kept = FUZZER.read_inputs()
    assert len(kept) > 50
    for data in kept:
        exercise(data)


@given(st.integers(0, 4), st.lists(st.one_of(st.sampled_from(WORDS), st.binary(max_size=8)), max_size=30))
@example(1, [b'{"kind":', b'"\\ud800"', b"}"])
def test_words_of_the_grammar_in_any_order_break_no_promise(choice: int, words: list[bytes]) -> None:
    exercise(bytes([choice]) + b"".join(words))


@given(st.randoms(use_true_random=False))
def test_changes_of_the_corpus_break_no_promise(chance: random.Random) -> None:
    kept = FUZZER.read_inputs()
    data = FUZZER.mutate(chance.choice(kept), kept, chance)
    assert len(data) <= FUZZER.max_bytes
    exercise(data)


def test_the_smallest_corpus_reaches_as_much() -> None:
    inputs = {b"a": {("x", 1, 2)}, b"bb": {("x", 1, 2), ("x", 2, 3)}, b"ccc": {("x", 2, 3)}}
    kept = minimise(inputs)
    assert set().union(*(inputs[data] for data in kept)) == {("x", 1, 2), ("x", 2, 3)}
