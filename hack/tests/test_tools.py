# SPDX-License-Identifier: Apache-2.0
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from simyard_dev import tools
from simyard_dev.errors import SetupError

# A stand-in for `go`: notes each build, and writes the files of `go build -o DIR/ PACKAGE...`.
FAKE_GO = """#!/bin/sh
[ "$1" = env ] && exit 0
echo "$@" >> {log}
sleep 0.5
while [ "$1" != -o ]; do shift; done
directory=$2
shift 2
for package; do
  name=${{package##*/}}
  [ "$name" = v3 ] && name=server
  printf '#!/bin/sh\\n' > "$directory/$name"
  chmod +x "$directory/$name"
done
"""


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide an empty cache and a stand-in for `go`; return the file in which builds are noted."""
    log = tmp_path / "builds"
    fake = tmp_path / "bin" / "go"
    fake.parent.mkdir()
    fake.write_text(FAKE_GO.format(log=log))
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return log


@pytest.mark.timeout(900)  # the first call may have to build them
def test_the_pinned_versions_are_stamped() -> None:
    programs = tools.ensure()
    version = {
        "etcd": ["--version"],
        "kube-apiserver": ["--version"],
        "kube-controller-manager": ["--version"],
        "kube-scheduler": ["--version"],
        "kubectl": ["version", "--client"],
        "kwok": ["--version"],
        "helm": ["version"],
        "versitygw": ["--version"],
    }
    for module in tools.GO_MODULES:
        for name in module.packages:
            if programs[name].parent != module.cache_directory:
                continue  # KUBEBUILDER_ASSETS may hold any version
            output = subprocess.run([programs[name], *version[name]], capture_output=True, text=True, check=True)
            assert module.version.removeprefix("v") in output.stdout, name


def test_programs_of_one_module_are_built_together_and_once(builds: Path) -> None:
    first = tools.ensure(["kube-apiserver", "kubectl", "etcd"])
    assert tools.ensure(["kube-apiserver", "kubectl", "etcd"]) == first
    assert all(path.exists() for path in first.values())
    kubernetes, etcd = builds.read_text().splitlines()
    assert kubernetes.endswith("k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl")
    assert etcd.endswith("go.etcd.io/etcd/server/v3")


def test_processes_that_need_the_same_program_build_it_once(builds: Path) -> None:
    command = [sys.executable, "-m", "simyard_dev", "tools", "helm"]
    package = Path(tools.__file__).parent.parent
    running = [subprocess.Popen(command, cwd=package, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(timeout=240) for process in running] == [0, 0]
    assert len(builds.read_text().splitlines()) == 1


def test_kubebuilder_assets_come_first(builds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "etcd").touch(0o755)
    (assets / "kubectl").touch(0o644)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    programs = tools.ensure(["etcd", "kubectl"])
    assert programs["etcd"] == assets / "etcd"
    assert programs["kubectl"] != assets / "kubectl", "a file that cannot be executed is no program"
    assert len(builds.read_text().splitlines()) == 1


def test_an_unknown_tool_is_refused() -> None:
    with pytest.raises(SetupError, match="unknown tools kubelet: choose from kube-apiserver"):
        tools.ensure(["kubelet"])


def test_without_go_the_remedy_is_told(builds: Path) -> None:
    shutil.rmtree(builds.parent / "bin")
    with pytest.raises(SetupError, match=r"Go is needed.*install Go"):
        tools.ensure(["helm"])


def test_with_an_old_go_the_remedy_is_told(builds: Path) -> None:
    (builds.parent / "bin" / "go").write_text(
        "#!/bin/sh\necho 'go.mod requires go >= 1.24.0 (running go 1.19)'; exit 1"
    )
    with pytest.raises(SetupError, match=r"(?s)requires go >= 1.24.0.*install Go"):
        tools.ensure(["helm"])


def test_a_build_that_fails_shows_what_go_said(builds: Path) -> None:
    (builds.parent / "bin" / "go").write_text('#!/bin/sh\n[ "$1" = env ] || { echo disk full; exit 1; }')
    with pytest.raises(SetupError, match=r"(?s)go build of helm failed.*disk full"):
        tools.ensure(["helm"])
    assert not (tools.HELM.cache_directory / "helm").exists()
