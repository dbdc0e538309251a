# SPDX-License-Identifier: Apache-2.0
"""A release is built without its image, and each file serves as docs/verify-release.md says."""

import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

import guides
import release
from simyard_dev import tools
from simyard_dev.errors import SetupError

VERSION = "9.8.7-rc.1"
GUIDE = "docs/verify-release.md"

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("release")]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("release")
    release.release(VERSION, directory, image="none")
    return directory


def in_shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    helm = tools.ensure(["helm"])["helm"].parent
    path = f"{helm}:{os.environ['PATH']}"
    command = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "PIP_NO_COMPILE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_file_has_the_version(files: Path) -> None:
    assert sorted(path.name for path in files.iterdir()) == [
        "SHA256SUMS",
        "simyard-9.8.7-rc.1.cdx.json",
        "simyard-9.8.7rc1-py3-none-any.whl",
        "simyard-9.8.7rc1.tar.gz",
        "simyard-chart-9.8.7-rc.1.tgz",
        "simyard-crds-9.8.7-rc.1.yaml",
        "simyard-requirements-9.8.7-rc.1.txt",
        "simyard_adapter-9.8.7rc1-py3-none-any.whl",
        "simyard_adapter-9.8.7rc1.tar.gz",
        "simyard_client-9.8.7rc1-py3-none-any.whl",
        "simyard_client-9.8.7rc1.tar.gz",
        "simyard_sites-9.8.7rc1-py3-none-any.whl",
        "simyard_sites-9.8.7rc1.tar.gz",
    ]


def test_the_commands_of_the_guide_succeed(files: Path) -> None:
    done = in_shell(guides.collect_commands(GUIDE, "hack/tests/test_release.py"), files)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "version 9.8.7rc1" in done.stdout
    rendered = [item for item in yaml.safe_load_all((files / "rendered.yaml").read_text()) if item]
    images = {
        container["image"]
        for item in rendered
        if item["kind"] == "Deployment"
        for container in item["spec"]["template"]["spec"]["containers"]
    }
    assert images == {"simyard:9.8.7-rc.1"}


def test_a_changed_file_does_not_pass(files: Path, tmp_path: Path) -> None:
    name = f"simyard-crds-{VERSION}.yaml"
    (tmp_path / name).write_text((files / name).read_text() + "\n")
    (tmp_path / "SHA256SUMS").write_text((files / "SHA256SUMS").read_text())
    done = in_shell("sha256sum --check --strict --ignore-missing SHA256SUMS", tmp_path)
    assert (done.returncode, f"{name}: FAILED" in done.stdout) == (1, True)


def test_the_definitions_are_all_kinds_in_one_file(files: Path) -> None:
    kinds = yaml.safe_load_all((files / f"simyard-crds-{VERSION}.yaml").read_text())
    names = {item["metadata"]["name"].partition(".")[0] for item in kinds}
    assert names == {path.stem for path in (guides.ROOT / "crds").glob("*.yaml")}


def test_the_bill_of_materials_lists_the_wheels_and_no_tools_of_developers(files: Path) -> None:
    document = json.loads((files / f"simyard-{VERSION}.cdx.json").read_text())
    components = {item["name"]: item["version"] for item in document["components"]}
    assert document["metadata"]["component"]["type"] == "application"
    assert components["simyard"] == components["simyard-adapter"] == components["simyard-sites"] == "9.8.7rc1"
    assert "aiohttp" in components
    assert not {"pytest", "ruff", "base-files"} & set(components)


def test_sources_carry_the_licence_and_the_package_named_build(files: Path) -> None:
    with tarfile.open(files / "simyard-9.8.7rc1.tar.gz") as archive:
        names = set(archive.getnames())
    assert {"simyard-9.8.7rc1/LICENSE", "simyard-9.8.7rc1/simyard/manifests/__init__.py"} <= names


@pytest.mark.parametrize("version", ["", "1.2", "v1.2.3", "1.2.3-dirty", "1.2.3+x"])
def test_a_version_that_helm_or_pip_would_not_take_is_refused(version: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"is not of the form 1\.2\.3"):
        release.release(version, tmp_path, image="none")
