# SPDX-License-Identifier: Apache-2.0
"""Print progress lines on stderr: each step and its duration."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

HEARTBEAT_SECONDS = 15.0


def say(message: str) -> None:
    """Print one progress line."""
    print(f"simyard: {message}", file=sys.stderr, flush=True)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print the title of a step, a line every 15 s while the block runs, and the duration at the end."""
    started = time.monotonic()
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(HEARTBEAT_SECONDS):
            say(f"{title}: {time.monotonic() - started:.0f} s so far")

    say(title)
    heartbeat = threading.Thread(target=beat, name="progress", daemon=True)
    heartbeat.start()
    try:
        yield
    finally:
        ended.set()
        heartbeat.join()
    say(f"{title}: done in {time.monotonic() - started:.1f} s")
