# SPDX-License-Identifier: Apache-2.0
"""Run the program of the counting service: report the begin to the observer, wait, report the end.

``tally.py OBSERVER KEY SECONDS`` prints the id of the run, which is new for each run.
"""

import sys
import time
import urllib.request
import uuid

ATTEMPTS = 100


def report(observer: str, event: str, key: str, run: str) -> None:
    """Repeat a report until the observer accepts it; the same report of the same run counts once."""
    for _ in range(ATTEMPTS):
        try:
            urllib.request.urlopen(f"http://{observer}/{event}/{key}/{run}", data=b"", timeout=5).close()
            return
        except OSError:
            time.sleep(0.3)
    sys.exit(f"{observer} did not accept that {key} has {event}")


def main() -> None:
    observer, key, seconds = sys.argv[1:]
    run = uuid.uuid4().hex
    report(observer, "begun", key, run)
    time.sleep(float(seconds))
    report(observer, "ended", key, run)
    print("run", run)


if __name__ == "__main__":
    main()
