# SPDX-License-Identifier: Apache-2.0
"""Fuzz parsers of untrusted input: change inputs at random, and keep the inputs that reach new code.

The corpus is a folder with one input per file: a small set of inputs that reach all pairs of lines that any input has
reached.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

Arc = tuple[str, int, int]
"""A file, and two of its lines that ran one after the other."""


@dataclass(frozen=True)
class Fuzzer:
    """A fuzzing target.

    Attributes:
        exercise: reads an input and raises if a promise is broken.
        corpus: the folder of the kept inputs.
        source: the path prefix of the code whose lines count.
        words: the words of the target's grammar.
        seeds: the first inputs if the corpus is empty.
        max_bytes: the maximum size of an input.
    """

    exercise: Callable[[bytes], None]
    corpus: Path
    source: str
    words: Sequence[bytes]
    seeds: Sequence[bytes]
    max_bytes: int = 600

    def read_inputs(self) -> list[bytes]:
        """Return the inputs of the corpus."""
        return [path.read_bytes() for path in sorted(self.corpus.iterdir())]

    def reach(self, data: bytes) -> set[Arc]:
        """Exercise an input and return the pairs of lines that it reached."""
        arcs: set[Arc] = set()
        before = 0

        def local(frame: FrameType, event: str, _argument: object) -> Any:
            nonlocal before
            if event == "line":
                arcs.add((frame.f_code.co_filename, before, frame.f_lineno))
                before = frame.f_lineno
            return local

        def calls(frame: FrameType, _event: str, _argument: object) -> Any:
            return local if frame.f_code.co_filename.startswith(self.source) else None

        sys.settrace(calls)
        try:
            self.exercise(data)
        finally:
            sys.settrace(None)
        return arcs

    def mutate(self, data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
        """Return the input with some random changes."""
        found = bytearray(data)
        for _ in range(chance.choice((1, 1, 2, 3, 5, 8))):
            at = chance.randrange(len(found) + 1)
            end = min(len(found), at + chance.choice((1, 1, 2, 4, 16, 64)))
            match chance.randrange(7):
                case 0:
                    found[at:end] = b""
                case 1 if at < len(found):
                    found[at] ^= 1 << chance.randrange(8)
                case 2:
                    found[at:at] = found[at:end]
                case 3:
                    other = chance.choice(others)
                    start = chance.randrange(len(other) + 1)
                    found[at:end] = other[start : start + chance.choice((4, 16, 64, 256))]
                case 4 if at < len(found):
                    found[at] = chance.randrange(256)
                case _:
                    found[at:end] = chance.choice(self.words)
        return bytes(found[: self.max_bytes])

    def fuzz(self, seconds: float, seed: int) -> tuple[int, int, int]:
        """Fuzz for a time; return the numbers of inputs tried, of inputs kept, and of pairs of lines reached."""
        chance = random.Random(seed)  # noqa: S311
        reached_by = {data: self.reach(data) for data in self.read_inputs() or self.seeds}
        reached = set().union(*reached_by.values())
        tried, end = 0, time.monotonic() + seconds
        everything = list(reached_by)
        while time.monotonic() < end:
            data = self.mutate(chance.choice(everything), everything, chance)
            tried += 1
            try:
                arcs = self.reach(data)
            except BaseException:
                print(f"broken by {data!r}", file=sys.stderr)
                raise
            if not arcs <= reached:
                reached |= arcs
                reached_by[data] = arcs
                everything.append(data)
        kept = minimise(reached_by)
        self._write(kept)
        return tried, len(kept), len(reached)

    def run_command(self, description: str | None) -> None:
        """Run as a command with the options ``--seconds`` and ``--seed``."""
        options = argparse.ArgumentParser(description=description)
        options.add_argument("--seconds", type=float, default=600)
        options.add_argument("--seed", type=int, default=time.time_ns())
        chosen = options.parse_args()
        tried, kept, reached = self.fuzz(chosen.seconds, chosen.seed)
        print(f"{tried} inputs tried (seed {chosen.seed}), {kept} kept, {reached} pairs of lines reached")

    def _write(self, kept: Sequence[bytes]) -> None:
        named = {hashlib.sha256(data).hexdigest()[:16]: data for data in kept}
        for path in self.corpus.iterdir():
            if path.name not in named:
                path.unlink()
        for name, data in named.items():
            (self.corpus / name).write_bytes(data)


def minimise(reached_by: dict[bytes, set[Arc]]) -> list[bytes]:
    """Return a small subset of the inputs that reaches the same pairs of lines; it prefers shorter inputs."""
    kept: list[bytes] = []
    reached: set[Arc] = set()
    for data in sorted(reached_by, key=lambda one: (-len(reached_by[one] - reached) // 20, len(one))):
        if not reached_by[data] <= reached:
            kept.append(data)
            reached |= reached_by[data]
    return kept
