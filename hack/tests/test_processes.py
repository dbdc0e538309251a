# SPDX-License-Identifier: Apache-2.0
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from simyard_dev.errors import SetupError
from simyard_dev.processes import Identity, Process, kill_all

pytestmark = pytest.mark.slow

STUBBORN = "trap '' TERM; echo deaf; while :; do sleep 0.1; done"


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process(tmp_path, "sleeper")


def identity(process: Process) -> Identity:
    found = process.identity
    assert found
    return found


def test_a_started_process_is_known_to_others_by_its_directory(process: Process, tmp_path: Path) -> None:
    process.start(["sleep", "60"])
    other = Process(tmp_path, "sleeper")
    assert other.is_alive()
    other.stop(grace_seconds=5)
    assert not process.is_alive()
    assert not process.pid_file.exists()


def test_starting_twice_starts_once(process: Process) -> None:
    process.start(["sleep", "60"])
    first = identity(process)
    process.start(["sleep", "60"])
    assert identity(process) == first
    process.kill()


def test_a_process_that_ignores_sigterm_is_killed(process: Process) -> None:
    process.start(["sh", "-c", STUBBORN])
    process.wait_ready(lambda: "deaf" in process.log_file.read_text(), 5)
    stubborn = identity(process)
    process.stop(grace_seconds=0.2)
    assert not stubborn.is_alive()


def test_the_children_die_with_a_killed_process(process: Process, tmp_path: Path) -> None:
    child_file = tmp_path / "child"
    process.start(["sh", "-c", f"sleep 60 & echo $! > {child_file}; wait"])
    process.wait_ready(lambda: child_file.exists() and bool(child_file.read_text()), 5)
    child = Identity.of(int(child_file.read_text()))
    process.kill()
    assert child
    assert child.wait_gone(5)


def test_another_process_with_the_same_pid_is_not_killed(process: Process) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        process.pid_file.write_text(f"{other.pid} 1")
        assert not process.is_alive()
        process.stop(grace_seconds=1)
        assert other.poll() is None
        other.kill()


def test_a_process_that_ends_too_early_shows_its_log(process: Process) -> None:
    process.start(["sh", "-c", "echo no such port; exit 3"])
    with pytest.raises(SetupError, match=r"(?s)sleeper ended before it was ready.*no such port"):
        process.wait_ready(lambda: False, 5)


def test_a_process_that_is_never_ready_shows_its_log(process: Process) -> None:
    process.start(["sh", "-c", "echo still thinking; sleep 60"])
    with pytest.raises(SetupError, match=r"(?s)not ready after 0 s.*sleeper.log"):
        process.wait_ready(lambda: False, 0.3)
    process.kill()


def test_a_program_that_is_missing_is_named(process: Process) -> None:
    with pytest.raises(SetupError, match=r"sleeper cannot be started.*no-such-program"):
        process.start(["no-such-program"])


def test_everything_below_a_directory_is_killed(tmp_path: Path) -> None:
    processes = [Process(tmp_path / name, "sleeper") for name in ("one", "two")]
    for process in processes:
        process.start(["sleep", "60"])
    assert kill_all(tmp_path)
    assert not any(process.is_alive() for process in processes)
    assert not kill_all(tmp_path)


def test_the_watchdog_kills_what_a_killed_owner_leaves(process: Process, tmp_path: Path) -> None:
    process.start(["sleep", "60"])
    sleeper = identity(process)
    with subprocess.Popen(["sleep", "60"]) as owner:
        recorded = Identity.of(owner.pid)
        command = [sys.executable, "-m", "simyard_dev.watchdog", *str(recorded).split(), str(tmp_path)]
        with subprocess.Popen(command, cwd=Path(__file__).parent.parent) as watchdog:
            assert sleeper.is_alive()
            owner.send_signal(signal.SIGKILL)
            owner.wait()
            assert watchdog.wait(timeout=240) == 0
    assert not sleeper.is_alive()
