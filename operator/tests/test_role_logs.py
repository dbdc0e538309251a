# SPDX-License-Identifier: Apache-2.0
"""The logs of the processes on standard error."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import warnings
from simyard.roles.logs import configure_logs
configure_logs("json", "info")
warnings.warn("a library means that this will change", UserWarning)
"""


def test_what_a_library_warns_of_is_json_as_everything_else() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240, check=True)
    entries = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(entry["level"], "this will change" in entry["message"]) for entry in entries] == [("warning", True)]
