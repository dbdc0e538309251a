# SPDX-License-Identifier: Apache-2.0
"""Install missing Debian packages without letting them start services."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from simyard_dev.errors import SetupError
from simyard_dev.files import locked, write_whole
from simyard_dev.progress import step

# Maintainer scripts ask this program before they start a service; 101 means "not allowed"
# (invoke-rc.d(8), deb-systemd-invoke(1p)).
POLICY_FILE = Path("/usr/sbin/policy-rc.d")
POLICY = "#!/bin/sh\n# Written while Simyard installs packages.\nexit 101\n"
LOCK_FILE = Path("/run/lock/simyard-packages.lock")
APT_INSTALL = (
    "apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "--option", "DPkg::Lock::Timeout=300",
)  # fmt: skip


def ensure_packages(names: Iterable[str]) -> None:
    """Install the named Debian packages that are missing.

    An installation needs root; no service of the packages is started.

    Raises:
        SetupError: a package is missing and cannot be installed; the message gives the command that would do it.
    """
    missing = _missing(names)
    if not missing:
        return
    command = f"apt-get install {' '.join(missing)}"
    if not shutil.which("apt-get"):
        raise SetupError(f"{', '.join(missing)} not found: on Debian, run {command}")
    if os.geteuid() != 0:
        raise SetupError(f"{', '.join(missing)} not installed; run: sudo {command}")
    with locked(LOCK_FILE), _services_kept_down():
        missing = _missing(missing)
        if missing:
            with step(f"installing {', '.join(missing)}"):
                _install(missing)


def _missing(names: Iterable[str]) -> list[str]:
    return [name for name in names if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        query = subprocess.run(
            ["dpkg-query", "--show", "--showformat=${db:Status-Status}", name],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return False
    return query.stdout.strip() == "installed"


def _install(names: list[str]) -> None:
    """Install with the present package lists; if that fails, update the lists and try again."""
    if _apt([*APT_INSTALL, *names]).returncode == 0:
        return
    _apt(["apt-get", "update", "--quiet"])
    result = _apt([*APT_INSTALL, *names])
    if result.returncode:
        tail = "\n".join(result.stdout.splitlines()[-20:])
        raise SetupError(f"apt-get could not install {', '.join(names)}:\n{tail}")


def _apt(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip


@contextmanager
def _services_kept_down() -> Iterator[None]:
    """Forbid the start of services while the block runs, and restore the policy of the machine afterwards.

    The function renames the file of the policy. If a run is killed before the end, the next run restores the policy.
    """
    aside = POLICY_FILE.with_name("policy-rc.d.before-simyard")
    if POLICY_FILE.exists() and not aside.exists() and POLICY_FILE.read_text() != POLICY:
        POLICY_FILE.rename(aside)
    write_whole(POLICY_FILE, POLICY)
    POLICY_FILE.chmod(0o755)
    try:
        yield
    finally:
        if aside.exists():
            aside.replace(POLICY_FILE)
        else:
            POLICY_FILE.unlink()
