# SPDX-License-Identifier: Apache-2.0
"""Build the files of a release: wheels, sdists, the chart, the CRDs, the image, bills of materials and checksums.

    PYTHONPATH=hack python hack/release.py [--version VERSION] [--image auto|required|none] [--directory DIRECTORY]

All files of a release have the version VERSION, even if the tree states a different one. The builders read the version
from the tree, so they run in a copy of the tracked files with the new version. The program does not change the tree.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from simyard_dev import tools
from simyard_dev.errors import SetupError
from simyard_dev.progress import say, step

REPOSITORY = Path(__file__).resolve().parent.parent
DISTRIBUTIONS = ("adapters/service", "adapters/sites", "adapters/client", "operator")
CHECKSUMS = "SHA256SUMS"
COMMAND_SECONDS = 900
VERSION_PATTERN = re.compile(r"\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?")
"""Matches versions that are valid for Helm (SemVer) and for wheels (PEP 440)."""
_VERSION_LINES = (
    ("operator/pyproject.toml", r'^version = "(.*)"$'),
    ("adapters/sites/pyproject.toml", r'^version = "(.*)"$'),
    ("adapters/service/pyproject.toml", r'^version = "(.*)"$'),
    ("adapters/client/pyproject.toml", r'^version = "(.*)"$'),
    ("adapters/service/simyard_adapter/__init__.py", r'^__version__ = "(.*)"$'),
    ("adapters/client/simyard_client/__init__.py", r'^__version__ = "(.*)"$'),
)
_SBOM_IN_IMAGE = "/opt/simyard/sbom.cdx.json"


def release(version: str, directory: Path, *, image: str = "auto") -> list[Path]:
    """Build a release and return its files; the directory is emptied first.

    ``image`` says when the container image is built: ``required``, ``none``, or ``auto`` (if a Docker engine answers).

    Raises:
        SetupError: the version is malformed, a tool is missing, or a builder failed.
    """
    if not VERSION_PATTERN.fullmatch(version):
        raise SetupError(f'version "{version}" is not of the form 1.2.3 or 1.2.3-rc.1: set VERSION accordingly')
    with_image = _wants_image(image)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="simyard-release-") as scratch:
        tree = Path(scratch) / "tree"
        copy_tree(tree, version)
        with step("building wheels and sdists"):
            _build_distributions(tree, directory)
        with step("packaging the chart"):
            _package_chart(tree, directory, version)
        _write_crds(tree, directory, version)
        shutil.copyfile(tree / "operator" / "requirements.lock", directory / f"simyard-requirements-{version}.txt")
        with step("installing the wheels for the bill of materials"):
            _write_sbom(tree, directory, version, Path(scratch) / "venv")
        if with_image:
            with step("building the image"):
                _build_image(tree, directory, version)
    write_checksums(directory)
    return sorted(directory.iterdir())


def read_tree_version() -> str:
    """Return the version that the workspace's pyproject.toml states."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def convert_version(version: str) -> str:
    """Return the form of a version that PEP 440 prescribes: 1.2.3rc1 for 1.2.3-rc.1."""
    for word, short in (("-alpha.", "a"), ("-beta.", "b"), ("-rc.", "rc")):
        version = version.replace(word, short)
    return version


def copy_tree(target: Path, version: str) -> None:
    """Copy the tracked files into a new directory, and replace the version in the files that have one."""
    listed = _run(["git", "ls-files", "-z"], cwd=REPOSITORY)
    for name in filter(None, listed.split("\0")):
        if (REPOSITORY / name).exists():  # a tracked file may have been deleted since the last commit
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, target / name)
    for name, pattern in _VERSION_LINES:
        text = (target / name).read_text()
        found = re.search(pattern, text, re.MULTILINE)
        if found is None:
            raise SetupError(f"{name}: no line {pattern} that states the version")
        (target / name).write_text(text[: found.start(1)] + convert_version(version) + text[found.end(1) :])
    for folder in DISTRIBUTIONS:
        shutil.copyfile(target / "LICENSE", target / folder / "LICENSE")


def write_checksums(directory: Path) -> None:
    """Write SHA256SUMS for all other files of a directory, in the format of sha256sum."""
    lines = []
    for path in sorted(directory.iterdir()):
        if path.name != CHECKSUMS:
            with path.open("rb") as file:
                lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    (directory / CHECKSUMS).write_text("".join(lines))


def _wants_image(image: str) -> bool:
    if image == "none":
        return False
    has_engine = shutil.which("docker") is not None and not subprocess.run(
        ["docker", "info"], stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_SECONDS, check=False
    ).returncode  # fmt: skip
    if image == "required" and not has_engine:
        raise SetupError("the image is required and no Docker engine answers `docker info`: start one")
    if not has_engine:
        say("no Docker engine answers: the release gets no image")
    return has_engine


def _build_distributions(tree: Path, directory: Path) -> None:
    # The time of the commit in the archives makes two builds of one commit equal.
    epoch = _run(["git", "log", "-1", "--format=%ct"], cwd=REPOSITORY).strip()
    for folder in DISTRIBUTIONS:
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(directory), "-t", "sdist", "-t", "wheel"]
        _run(command, cwd=tree / folder, SOURCE_DATE_EPOCH=epoch)


def _package_chart(tree: Path, directory: Path, version: str) -> None:
    helm = str(tools.ensure(["helm"])["helm"])
    versions = [f"--version={version}", f"--app-version={version}"]
    _run([helm, "package", "charts/simyard", *versions, f"--destination={tree}"], cwd=tree)
    # Helm's own name for it would differ from the sdist's by the ending alone.
    shutil.move(tree / f"simyard-{version}.tgz", directory / f"simyard-chart-{version}.tgz")


def _write_crds(tree: Path, directory: Path, version: str) -> None:
    documents = [path.read_text() for path in sorted((tree / "crds").glob("*.yaml"))]
    (directory / f"simyard-crds-{version}.yaml").write_text("---\n".join(documents))


def _write_sbom(tree: Path, directory: Path, version: str, venv: Path) -> None:
    """Install the wheels with their pinned dependencies in a virtual environment, and write its bill of materials."""
    uv = str(Path(sys.executable).parent / "uv")
    python = str(venv / "bin" / "python")
    _run([uv, "--quiet", "venv", "--python", sys.executable, str(venv)], cwd=tree)
    install = [uv, "--quiet", "pip", "install", "--python", python]
    _run([*install, "--require-hashes", "-r", "operator/requirements.lock"], cwd=tree)
    _run([*install, "--no-deps", "--no-index", *map(str, sorted(directory.glob("*.whl")))], cwd=tree)
    file = str(directory / f"simyard-{version}.cdx.json")
    _run([python, "hack/sbom.py", file, "--version", version, "--type", "application"], cwd=tree)


def _build_image(tree: Path, directory: Path, version: str) -> None:
    image = f"simyard:{version}"
    git = _run(["git", "rev-parse", "--absolute-git-dir"], cwd=REPOSITORY).strip()
    _run(["sh", "hack/image.sh", image], cwd=tree, GIT_DIR=git, VERSION=version)
    sbom = _run(["docker", "run", "--rm", "--entrypoint", "cat", image, _SBOM_IN_IMAGE], cwd=tree)
    (directory / f"simyard-image-{version}.cdx.json").write_text(sbom)
    archive = directory / f"simyard-image-{version}.tar.gz"
    with (
        subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saving,
        gzip.open(archive, "wb") as file,
    ):
        assert saving.stdout is not None
        shutil.copyfileobj(saving.stdout, file)
    if saving.returncode:
        raise SetupError(f"docker save {image} failed with exit code {saving.returncode}")


def _run(command: list[str], *, cwd: Path, **variables: str) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except OSError as error:
        raise SetupError(f"{command[0]} cannot be run: {error}") from error
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise SetupError(f"`{' '.join(command)}` failed with exit code {done.returncode}:\n{tail}")
    return done.stdout


def main(arguments: list[str] | None = None) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--version", default="", help="version of the release (default: that of pyproject.toml)")
    parser.add_argument("--directory", type=Path, default=REPOSITORY / ".run" / "release", help="emptied first")
    parser.add_argument("--image", choices=("auto", "required", "none"), default="auto")
    options = parser.parse_args(arguments)
    try:
        files = release(options.version or read_tree_version(), options.directory.absolute(), image=options.image)
    except SetupError as problem:
        print(f"release: {problem}", file=sys.stderr)
        return 1
    for path in files:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
