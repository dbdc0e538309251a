"""Waiting, for the tests of the development environment."""

import time
from collections.abc import Callable

import pytest


def eventually(condition: Callable[[], bool], deadline_seconds: float = 60.0) -> None:
    deadline = time.monotonic() + deadline_seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {deadline_seconds:.0f} s: {condition}")
        time.sleep(0.05)
