# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kube_api import wait_until
from simyard_dev.processes import Identity, Process

pytestmark = pytest.mark.slow

PACKAGE_DIRECTORY = Path(__file__).parent.parent
# Two workers of a run note the API server that they were given; a marker tells when both have done so.
TESTS = """
import os, pathlib, time, pytest

@pytest.mark.parametrize("number", [1, 2])
def test_it_runs(control_plane, number, worker_id):
    noted = pathlib.Path(os.environ["NOTES"])
    (noted / worker_id).write_text(str(control_plane.processes[1].identity))
    while len(list(noted.iterdir())) < 2:
        time.sleep(0.05)
    while "WAIT" in os.environ:
        time.sleep(0.05)
"""

TESTS_OF_FILES = """
def test_it_writes(simyard_directory):
    (simyard_directory / "server.log").write_text("it runs")
"""


def start_run(directory: Path, *options: str, tests: str = TESTS, **environment: str) -> subprocess.Popen[bytes]:
    """Start a test run with two workers; all its files are below the directory."""
    (directory / "test_it.py").write_text(tests)
    for name in ("notes", "tmp"):
        (directory / name).mkdir()
    command = [sys.executable, "-m", "pytest", "-p", "simyard_dev.fixtures", "-n", "2", *options, "test_it.py"]
    variables = {"PYTHONPATH": str(PACKAGE_DIRECTORY), "NOTES": str(directory / "notes")}
    return subprocess.Popen(
        command,
        cwd=directory,
        env={**os.environ, **variables, "TMPDIR": str(directory / "tmp"), **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def noted_servers(directory: Path) -> set[Identity]:
    return {Identity.parse(note.read_text()) for note in (directory / "notes").iterdir()}


def test_the_workers_of_a_run_share_one_control_plane_that_ends_with_it(tmp_path: Path) -> None:
    with start_run(tmp_path) as run:
        assert run.wait(timeout=240) == 0
    (server,) = noted_servers(tmp_path)
    assert not server.is_alive()
    assert list((tmp_path / "tmp").glob("simyard-test-*")) == []


def test_logs_are_kept_on_request(tmp_path: Path) -> None:
    with start_run(tmp_path, "--simyard-keep", str(tmp_path / "kept"), tests=TESTS_OF_FILES) as run:
        assert run.wait(timeout=240) == 0
    (log,) = (tmp_path / "kept").glob("simyard-test-*/server.log")
    assert log.read_text() == "it runs"


def test_a_killed_run_leaves_no_process(tmp_path: Path) -> None:
    with start_run(tmp_path, WAIT="forever") as run:
        wait_until(lambda: run.poll() is not None or len(list((tmp_path / "notes").glob("gw*"))) == 2)
        (directory,) = (tmp_path / "tmp").glob("simyard-test-*/controlplane")
        names = ("etcd", "kube-apiserver", "kube-controller-manager")
        identities = [Process(directory, name).identity for name in names]
        assert all(identities)
        run.kill()
    wait_until(lambda: not any(identity and identity.is_alive() for identity in identities))
