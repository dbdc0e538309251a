# SPDX-License-Identifier: Apache-2.0
"""The commands in the documents work as described, on the system that `make quickstart` leaves behind."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import guides
from simyard_dev import quickstart
from simyard_dev.environment import Environment
from simyard_dev.platform import Platform

ROOT = Path(__file__).resolve().parents[2]
PLACE = re.compile(r"(\$PWD/)?\.run/(quickstart|dev)\b")
DOCUMENT_SECONDS = 240
EVERYTHING_GOES = """
kubectl delete serviceactions,studies --all --all-namespaces
kubectl delete workerpools --all --all-namespaces --timeout=240s
kubectl delete workers --all --all-namespaces --timeout=240s
kubectl delete simulationservices,occimixins,occilinks --all --all-namespaces --timeout=240s
kubectl delete cloudsites --all --timeout=240s
"""
DOCUMENTS = (
    "README.md",
    "docs/tutorial.md",
    "docs/starts.md",
    "docs/troubleshooting.md",
    "examples/calculix-beam/README.md",
    "examples/calculix-deck/README.md",
    "docs/metering.md",
    "docs/licences.md",
    "docs/occi.md",
    "docs/files.md",
    "docs/studies.md",
    "docs/optimisation.md",
    "docs/rotation.md",
)

pytestmark = pytest.mark.xdist_group("quickstart")


@dataclass(frozen=True)
class Running:
    """A system as `make quickstart` leaves it."""

    directory: Path

    def does(self, script: str, folder: Path) -> str:
        """Run commands that must succeed, and return their output."""
        done = self.sh(script, folder)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def sh(self, script: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run commands of a document, in the folder of its reader."""
        variables = {
            **os.environ,
            "KUBECONFIG": str(self.directory / "kubeconfig"),
            "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}",
        }
        here = PLACE.sub(str(self.directory), script)
        limit = ["timeout", "--kill-after=5", str(DOCUMENT_SECONDS)]  # the output until the limit is kept
        return subprocess.run(
            [*limit, "bash", "-euxo", "pipefail", "-c", here],
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )


def open_environment(directory: Path) -> Environment:
    """Return the environment of `make quickstart`, with statistics of the broker that tests need not wait for."""
    return Environment(directory, statistics_seconds=1)


@pytest.fixture(scope="module")
def system(quickstart_environment: Environment) -> Running:
    return Running(quickstart_environment.directory)


def test_the_summary_says_what_was_started_and_solved(system: Running) -> None:
    summary = json.loads((system.directory / "summary.json").read_text())
    assert summary["pool"] == {"namespace": "default", "name": "beams", "replicas": 3, "ready": 3}
    assert 0 < summary["t_boot_s"] <= summary["t_r_s"] <= summary["t_m_s"]
    action = summary["action"]
    assert action["name"] == "solve"
    assert action["result"]["max_displacement"] == pytest.approx(action["theory"], rel=0.01)
    assert abs(action["error_percent"]) < 1


def test_quickstart_again_keeps_what_runs_and_what_was_scaled(system: Running) -> None:
    before = json.loads((system.directory / "summary.json").read_text())
    assert system.sh("kubectl scale workerpool beams --replicas 4", ROOT).returncode == 0
    quickstart.run(open_environment(system.directory), occi=True)
    after = json.loads((system.directory / "summary.json").read_text())
    assert after["pool"]["replicas"] == 4
    assert after["t_m_s"] == before["t_m_s"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_succeeds(system: Running, document: str) -> None:
    path = ROOT / document
    system.sh("kubectl delete serviceactions --all", ROOT)
    folder = path.parent if (path.parent / "service.yaml").exists() else ROOT
    done = system.sh(guides.collect_commands(document), folder)  # in one shell, like the reader
    assert done.returncode == 0, f"{document}:\n{done.stdout}\n{done.stderr}"


def test_the_python_of_the_guide_runs(system: Running, tmp_path: Path) -> None:
    (tmp_path / "guide.py").write_text(guides.collect_python("docs/python.md"))
    shown = system.does(f"{sys.executable} guide.py", tmp_path)
    assert "{'unfinished': 0, 'succeeded': 15, 'failed': 0}" in shown
    assert "{'parameters.length': '-1 is below the minimum of 1 mm'}" in shown


def test_a_doubled_load_doubles_the_displacement(system: Running) -> None:
    def solve(load: int) -> float:
        body = json.dumps({"parameters": {"length": 1000, "load": load}})
        path = "/apis/subresources.simyard.dev/v1alpha1/namespaces/default/workerpools/beams/actions/solve"
        done = system.sh(f"echo '{body}' | kubectl create --raw {path} -f -", ROOT)
        assert done.returncode == 0, done.stderr
        displacement: float = json.loads(done.stdout)["result"]["max_displacement"]
        return displacement

    assert solve(200) == pytest.approx(2 * solve(100), rel=1e-4)


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("action pool/beams solve -p length=-1", 1, "parameters.length: -1 is below the minimum of 1 mm"),
        ("action pool/beams solve -p deck=nonsense", 1, "InvalidParameters: parameters.deck: has no *STEP card"),
        ("action pool/beams solve -p 'deck=*STEP'", 1, "ActionFailed: ccx wrote no displacements"),
        ("action pool/beams melt", 1, 'has no action "melt"'),
        ("action pool/nothing solve", 1, 'workerpools.simyard.dev "nothing" not found'),
        ("action planet/mars solve", 2, "is not worker/NAME, pool/NAME or service/NAME"),
        ("attributes pool/beams colour", 1, "colour"),
        ("logs nobody", 1, "not found"),
        ("timeline nothing", 1, "not found"),
        ("usage worker/beams-0", 2, "not for single workers"),
    ],
)
def test_the_command_line_says_what_was_wrong(system: Running, command: str, code: int, said: str) -> None:
    done = system.sh(f"kubectl simyard {command}", ROOT)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("services", r"^calculix-beam +True +solve,cancel "),
        ("services -o wide", "Simyard examples +2.20"),
        ("pools", r"^beams +calculix-beam +\d +\d +True"),
        ("pools -A -o wide", r"^default +beams .*\d\.\d{3}s +\d\.\d{3}s +local"),
        ("workers beams", r"^beams-0 +calculix-beam +local +True"),
        ("describe service/calculix-beam", r"^  length +number +mm +1000 +1\.\.100000"),
        ("timeline beams", r"^T_boot \d+\.\d{3} s, T_r \d+\.\d{3} s, T_m \d+\.\d{3} s$"),
        ("timeline beams --watch", r"^Start of beams: \d workers \(emulated\)"),
        ("timeline beams -o svg", "^<svg "),
        ("attributes pool/beams solved --fresh", r"^beams-\d +solved +\d"),
        ("logs beams-0 --tail 1", "."),
        ("usage beams -o csv", "^pool,service,site,running_workers,worker_seconds,"),
        ("pools -o json", '"kind": "WorkerPool"'),
        ("workers -o yaml", "kind: Worker"),
    ],
)
def test_the_command_line_shows(system: Running, command: str, shown: str) -> None:
    done = system.sh(f"kubectl simyard {command}", ROOT)
    assert done.returncode == 0, done.stderr
    assert re.search(shown, done.stdout, re.MULTILINE), done.stdout


def test_usage_shows_what_the_pool_used(system: Running) -> None:
    waits = "kubectl wait usage/simyard --timeout=240s --for"
    row = """jsonpath='{.status.rows[?(@.pool=="beams")].pool}'=beams"""
    done = system.sh(f"{waits}=create; {waits}={row}; kubectl simyard usage", ROOT)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^beams +calculix-beam +local +\d+ +\d+ +\d+\.\d\d +0 +0$", done.stdout, re.MULTILINE), (
        done.stdout
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("simyard ac", "action"),
        ("simyard attributes po", "pool/"),
        ("simyard attributes pool/", "pool/beams"),
        ("simyard logs ''", "beams-0"),
    ],
)
def test_kubectl_completes(system: Running, words: str, expected: str) -> None:
    done = system.sh(f"kubectl __complete {words}", ROOT)
    assert expected in [line.split("\t")[0] for line in done.stdout.splitlines()], done.stdout + done.stderr


def test_a_restored_backup_brings_pools_and_accounts_back(system: Running, tmp_path: Path) -> None:
    def uids() -> set[str]:
        path = "{.items[*].metadata.uid}"
        return set(system.does(f"kubectl get workers -l simyard.dev/pool=beams -o jsonpath='{path}'", ROOT).split())

    def accounted() -> int:
        path = '{.status.rows[?(@.pool=="beams")].workerMilliseconds}'
        return sum(map(int, system.does(f"kubectl get usage simyard -o jsonpath='{path}'", ROOT).split()))

    shutil.copytree(ROOT / "crds", tmp_path / "crds")
    save, *restore, see = [block.commands for block in guides.read_blocks("docs/backup.md")]
    pool = "kubectl get workerpool beams -o jsonpath='{.spec}'"
    two_ready = "kubectl wait workerpool/beams --timeout=240s --for=jsonpath='{.status.readyReplicas}'=2"
    system.does(f"kubectl scale workerpool beams --replicas 2; {two_ready}", ROOT)
    two_run = """jsonpath='{.status.rows[?(@.pool=="beams")].workers}'=2"""
    waits = "kubectl wait usage/simyard --timeout=240s --for"
    system.does(f"{waits}=create; {waits}={two_run}", ROOT)  # the account contains the time of the workers that ended
    before, workers = system.does(pool, ROOT), uids()
    system.does(save, tmp_path)
    saved = accounted()
    system.does(EVERYTHING_GOES, ROOT)
    platform = Platform(open_environment(system.directory), occi=True)
    platform.operator.stop(30)
    system.does("kubectl delete usages --all --all-namespaces", ROOT)
    system.does("kubectl -n simyard-system delete secrets --all", ROOT)
    for step in restore:
        system.does(step, tmp_path)
    assert accounted() == saved > 0
    platform.up()
    system.does(see, tmp_path)
    system.does(two_ready, ROOT)
    assert system.does(pool, ROOT) == before
    assert len(uids()) == 2
    assert not uids() & workers
    assert accounted() >= saved
    system.does("kubectl simyard action pool/beams solve", ROOT)
