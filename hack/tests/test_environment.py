# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess
import sys
from pathlib import Path

from kube_api import wait_until
from simyard_dev.__main__ import INTERRUPTED
from simyard_dev.environment import Environment

ROOT = Path(__file__).resolve().parents[2]


def test_ctrl_c_stops_the_servers_that_the_command_has_started(simyard_directory: Path) -> None:
    directory = simyard_directory / "interrupted"
    environment = Environment(directory)
    command = subprocess.Popen(
        [sys.executable, "-m", "simyard_dev", "up", "--dir", str(directory)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "hack")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: not environment.is_down())
    command.send_signal(signal.SIGINT)
    _, told = command.communicate(timeout=240)
    assert command.returncode == INTERRUPTED, told
    assert "Traceback" not in told
    assert "interrupted" in told
    assert environment.is_down()
