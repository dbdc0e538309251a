"""Progress lines on stderr: what happens, and the seconds it took."""

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
def step(what: str) -> Iterator[None]:
    """Announce a step that may take long, show that it is alive, and say at its end what it took."""
    started = time.monotonic()
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(HEARTBEAT_SECONDS):
            say(f"{what}: {time.monotonic() - started:.0f} s so far")

    say(what)
    heartbeat = threading.Thread(target=beat, name="progress", daemon=True)
    heartbeat.start()
    try:
        yield
    finally:
        ended.set()
        heartbeat.join()
    say(f"{what}: done in {time.monotonic() - started:.1f} s")
