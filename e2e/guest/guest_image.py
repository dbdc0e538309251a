# SPDX-License-Identifier: Apache-2.0
"""Build the image of a worker as a vendor would: a small Debian with cloud-init and the adapter's built wheel.

The image has no boot loader: the machine gets the kernel beside the disk. Each step is cached by a hash of its inputs.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from simyard_dev.errors import SetupError
from simyard_dev.files import locked, write_whole
from simyard_dev.packages import ensure_packages
from simyard_dev.progress import step

PROJECT = Path(__file__).resolve().parents[2]
TOOLS = ("mmdebstrap", "e2fsprogs", "qemu-system-x86", "xorriso")
"""Debian packages of the machine that builds and boots images."""
PACKAGES = (
    "linux-image-cloud-amd64",
    "initramfs-tools",
    "systemd-sysv",
    "udev",
    "dbus",
    "iproute2",
    "cloud-init",
    "sudo",
    "python3",
)
"""Debian packages of the image, beside the essential ones."""
EXCLUDED = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*")
SLACK_MIB = 256
BUILD_SECONDS = 600
# The modules for a virtio disk, instead of the drivers of all disks.
INITRAMFS = """\
mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d"
echo MODULES=list >"$1/etc/initramfs-tools/conf.d/guest"
printf '%s\\n' virtio_pci virtio_blk ext4 >"$1/usr/share/initramfs-tools/modules.d/guest"
"""
LAUNCHER = "#!/usr/bin/python3\nimport sys\n\nfrom simyard_adapter.__main__ import main\n\nsys.exit(main())\n"
FILES = {
    "etc/fstab": "LABEL=root / ext4 defaults 0 1\n",
    "etc/systemd/network/90-dhcp.network": "[Match]\nName=en*\n\n[Network]\nDHCP=ipv4\n",
    # Debian has no packages of OpenNebula. This script does the part that the start script needs, if the kernel's
    # command line asks for it (README of OpenNebula/one-apps, context-linux).
    "etc/systemd/system/emulated-one-context.service": (
        "[Unit]\nConditionKernelCommandLine=emulated-one-context\nWants=network-online.target\n"
        "After=network.target\n\n[Service]\nType=oneshot\nExecStart=/usr/local/sbin/emulated-one-context\n"
    ),
}
PROGRAMS = {
    "usr/local/bin/simyard-adapter": LAUNCHER,
    "usr/local/sbin/emulated-one-context": """\
#!/bin/sh
set -eu
mount -o ro "$(blkid -l -t LABEL=CONTEXT -o device)" /mnt
set -a
. /mnt/context.sh
set +a
umount /mnt
directory=$(mktemp -d)
echo "$START_SCRIPT_BASE64" | base64 -d >"$directory/one-start-script"
chmod +x "$directory/one-start-script"
"$directory/one-start-script"
rm -r "$directory"
""",
}
ENABLED = ("systemd-networkd.service", "emulated-one-context.service")


@dataclass(frozen=True)
class Image:
    """A disk and the kernel that boots it; a vendor's own disk boots by itself."""

    disk: Path
    kernel: Path | None = None
    initrd: Path | None = None


def build(cache: Path) -> Image:
    """Return the image; build the parts that are not in the cache.

    Raises:
        SetupError: this machine cannot build the image; the message gives the reason.
    """
    ensure_packages(TOOLS)
    if os.geteuid() != 0:
        raise SetupError("building a guest image needs root (mmdebstrap, owners of files in mkfs.ext4 -d)")
    with locked(cache / "image.lock"):
        base = _base(cache)
        wheel = _wheel(cache)
        pins = (PROJECT / "requirements.lock").read_bytes()
        parts = (base.name.encode(), wheel.read_bytes(), pins, Path(__file__).read_bytes())
        image = cache / f"image-{_digest(parts)}"
        if not image.exists():
            with step("building the guest image"):
                _build(base, wheel, image)
            _forget(cache, "image-*", image)
    return Image(image / "root.ext4", image / "vmlinuz", image / "initrd.img")


def _base(cache: Path) -> Path:
    """Return a Debian as a directory, from the package archives of this machine."""
    release, archives = _archives()
    command = [
        "mmdebstrap",
        "--mode=root",
        "--variant=minbase",
        "--quiet",
        f"--include={','.join(PACKAGES)}",
        '--aptopt=APT::Install-Recommends "false"',
        *(f"--dpkgopt=path-exclude={path}" for path in EXCLUDED),
        f"--essential-hook={INITRAMFS}",
        release,
    ]
    base = cache / f"base-{_digest(text.encode() for text in [*command, *archives])}"
    if not base.exists():
        scratch = cache / "base.new"
        shutil.rmtree(scratch, ignore_errors=True)
        with step(f"installing a Debian {release} for guests"):
            _run([*command, str(scratch), *archives])
        scratch.rename(base)
        _forget(cache, "base-*", base)
    return base


def _archives() -> tuple[str, list[str]]:
    """Return this machine's release of Debian, and its archives as lines of a sources.list."""
    told = Path("/etc/os-release").read_text()
    found = re.search(r"^VERSION_CODENAME=(\w+)$", told, re.MULTILINE)
    lines = _run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN) deb $(SITE) $(RELEASE) $(COMPONENT)", "Identifier: Packages"]
    ).splitlines()
    archives = [line.removeprefix("Debian ") for line in dict.fromkeys(lines) if line.startswith("Debian deb ")]
    if found is None or not archives:
        raise SetupError("building a guest image needs a Debian with package lists: run apt-get update")
    return found[1], archives


def _wheel(cache: Path) -> Path:
    """Build the wheel of the adapter as for a release."""
    directory = cache / "wheel"
    shutil.rmtree(directory, ignore_errors=True)
    environment = {"SOURCE_DATE_EPOCH": "1700000000"}
    _run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)],
        environment,
        "adapters/service",
    )
    [wheel] = directory.glob("*.whl")
    return wheel


def _build(base: Path, wheel: Path, image: Path) -> None:
    scratch = image.with_name("image.new")
    shutil.rmtree(scratch, ignore_errors=True)
    root = scratch / "root"
    scratch.mkdir()
    _run(["cp", "-a", "--reflink=auto", str(base), str(root)])
    python = (root / "usr/bin/python3").readlink().name
    modules = root / f"usr/local/lib/{python}/dist-packages"
    uv = Path(sys.executable).with_name("uv")
    _run(
        [
            str(uv), "pip", "install", "--quiet", "--target", str(modules), "--python-version", python[len("python") :],
            "--only-binary", ":all:", "--constraint", str(PROJECT / "requirements.lock"), str(wheel),
        ]
    )  # fmt: skip
    _run(["chroot", str(root), "python3", "-m", "compileall", "-q", f"/{modules.relative_to(root)}"])
    for files, mode in ((FILES, 0o644), (PROGRAMS, 0o755)):
        for path, content in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            write_whole(root / path, content)
            (root / path).chmod(mode)
    wanted = root / "etc/systemd/system/multi-user.target.wants"
    wanted.mkdir(exist_ok=True)
    for unit in ENABLED:
        source = "/etc" if f"etc/systemd/system/{unit}" in FILES else "/lib"
        (wanted / unit).symlink_to(f"{source}/systemd/system/{unit}")
    for name in ("vmlinuz", "initrd.img"):
        [file] = (root / "boot").glob(f"{name}-*")
        shutil.copy(file, scratch / name)
    used = int(_run(["du", "--summarize", "--block-size=1M", str(root)]).split()[0])
    disk = scratch / "root.ext4"
    _run(["mkfs.ext4", "-q", "-L", "root", "-d", str(root), str(disk), f"{used + SLACK_MIB}M"])
    shutil.rmtree(root)
    scratch.rename(image)


def _forget(cache: Path, pattern: str, kept: Path) -> None:
    for directory in cache.glob(pattern):
        if directory != kept:
            shutil.rmtree(directory)


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:12]


def _run(command: list[str], environment: dict[str, str] | None = None, directory: str = ".") -> str:
    done = subprocess.run(
        command,
        cwd=PROJECT / directory,
        env={**os.environ, "LC_ALL": "C.UTF-8", **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise SetupError(f"{command[0]} failed:\n{tail}")
    return done.stdout
