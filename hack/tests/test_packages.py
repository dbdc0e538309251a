# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from simyard_dev import packages
from simyard_dev.errors import SetupError

DPKG_QUERY = """#!/bin/sh
for name; do :; done
[ -e {root}/installed/$name ] && echo installed
"""
# Notes the command and the policy in force, then installs, unless the package lists are too old.
APT_GET = """#!/bin/sh
command=$1
for name; do :; done
echo "$command $name, services: $(sh {root}/policy-rc.d; echo $?)" >> {root}/log
[ $command = update ] && rm -f {root}/old-lists && exit
[ -e {root}/old-lists ] && echo "404 $name" && exit 100
touch {root}/installed/$name
"""


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a machine with no packages, in a directory in which the test is root."""
    (tmp_path / "installed").mkdir()
    (tmp_path / "bin").mkdir()
    for name, script in {"dpkg-query": DPKG_QUERY, "apt-get": APT_GET}.items():
        program = tmp_path / "bin" / name
        program.write_text(script.format(root=tmp_path))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(packages, "POLICY_FILE", tmp_path / "policy-rc.d")
    monkeypatch.setattr(packages, "LOCK_FILE", tmp_path / "lock")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    return tmp_path


def test_what_is_missing_is_installed_with_services_kept_down(debian: Path) -> None:
    (debian / "installed" / "socat").touch()
    packages.ensure_packages(["socat", "rabbitmq-server"])
    assert (debian / "log").read_text() == "install rabbitmq-server, services: 101\n"
    assert not (debian / "policy-rc.d").exists()


def test_the_machine_keeps_its_own_policy(debian: Path) -> None:
    (debian / "policy-rc.d").write_text("exit 42\n")
    packages.ensure_packages(["rabbitmq-server"])
    assert (debian / "log").read_text() == "install rabbitmq-server, services: 101\n"
    assert (debian / "policy-rc.d").read_text() == "exit 42\n"


def test_old_package_lists_are_renewed(debian: Path) -> None:
    (debian / "old-lists").touch()
    packages.ensure_packages(["rabbitmq-server"])
    commands = [line.split()[0] for line in (debian / "log").read_text().splitlines()]
    assert commands == ["install", "update", "install"]


def test_a_package_that_cannot_be_installed_is_named(debian: Path) -> None:
    (debian / "bin" / "apt-get").write_text("#!/bin/sh\necho no network; exit 100\n")
    with pytest.raises(SetupError, match=r"(?s)could not install rabbitmq-server.*no network"):
        packages.ensure_packages(["rabbitmq-server"])
    assert not (debian / "policy-rc.d").exists()


def test_others_than_root_are_told_the_command(debian: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(SetupError, match="run: sudo apt-get install rabbitmq-server"):
        packages.ensure_packages(["rabbitmq-server"])


def test_what_is_installed_needs_no_root(debian: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    (debian / "installed" / "rabbitmq-server").touch()
    packages.ensure_packages(["rabbitmq-server"])
