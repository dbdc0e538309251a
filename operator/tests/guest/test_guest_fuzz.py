# SPDX-License-Identifier: Apache-2.0
"""The kept corpus breaks no promise, nor do random changes of it (``make fuzz-guest`` looks for longer)."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from guest_fuzzing import FUZZER, KINDS, WORDS, exercise


def test_the_corpus_breaks_no_promise() -> None:
    kept = FUZZER.read_inputs()
    assert len(kept) > 5
    for data in kept:
        exercise(data)


@given(st.integers(0, len(KINDS) + 1), st.lists(st.one_of(st.sampled_from(WORDS), st.binary(max_size=8)), max_size=30))
def test_words_in_any_order_break_no_promise(choice: int, words: list[bytes]) -> None:
    exercise(bytes([choice]) + b"".join(words))


@given(st.randoms(use_true_random=False))
def test_changes_of_the_corpus_break_no_promise(chance: random.Random) -> None:
    kept = FUZZER.read_inputs()
    data = FUZZER.mutate(chance.choice(kept), kept, chance)
    assert len(data) <= FUZZER.max_bytes
    exercise(data)
