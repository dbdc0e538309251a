"""What a worker of the counting service runs: says to the observer that it began, waits, says that it ended.

``tally.py OBSERVER KEY SECONDS``; prints the run, which is new each time that it is run.
"""

import sys
import time
import urllib.request
import uuid

ATTEMPTS = 100


def tell(observer: str, what: str, key: str, run: str) -> None:
    """Until it is heard: saying the same of the same run again changes nothing."""
    for _ in range(ATTEMPTS):
        try:
            urllib.request.urlopen(f"http://{observer}/{what}/{key}/{run}", data=b"", timeout=5).close()
            return
        except OSError:
            time.sleep(0.3)
    sys.exit(f"{observer} does not hear that {key} has {what}")


def main() -> None:
    observer, key, seconds = sys.argv[1:]
    run = uuid.uuid4().hex
    tell(observer, "begun", key, run)
    time.sleep(float(seconds))
    tell(observer, "ended", key, run)
    print("run", run)


if __name__ == "__main__":
    main()
