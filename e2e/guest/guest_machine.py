# SPDX-License-Identifier: Apache-2.0
"""Run a virtual machine under QEMU as KubeVirt or OpenNebula makes it; it reaches nothing but the test's broker."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from guest_image import Image

from simyard_dev.processes import Process

BROKER = "10.0.2.100"
"""Address of the broker for guests; QEMU's network has nothing else (restrict=on)."""
BROKER_PORT = 5671
RELAY = Path(__file__).with_name("guest_relay.py")
MAC = "52:54:00:12:34:56"
CPUS = {"tcg": "Nehalem"}
"""The minimum for current distributions (x86-64-v2); emulation makes more CPUs slow."""
PROBE_SECONDS = 30
PROBE_END = "Attempted to kill init"
"""Message of the kernel at the end of a guest's first process: the kernel has run one."""
CONSOLE = "console=ttyS0 panic=-1"


@dataclass(frozen=True)
class Firmware:
    """The identity in the SMBIOS of the machine: ``spec.domain.firmware`` of a VirtualMachineInstance."""

    uuid: str
    serial: str

    def arguments(self) -> list[str]:
        """Return the arguments that libvirt passes to QEMU for KubeVirt."""
        system = f"type=1,manufacturer=KubeVirt,product=None,uuid={self.uuid},serial={self.serial},family=KubeVirt"
        return ["-uuid", self.uuid, "-smbios", system]


def accelerator(image: Image, directory: Path) -> str:
    """Return ``kvm`` if a guest really boots with it, else ``tcg``; GUEST_ACCELERATOR overrides the choice.

    Some machines have a /dev/kvm in which a Linux guest crashes.
    """
    told = os.environ.get("GUEST_ACCELERATOR")
    if told or image.kernel is None or not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return told or "tcg"
    console = directory / "kvm-probe.console"
    command = [*_qemu("kvm", console), *_kernel(image, "rdinit=/bin/true"), "-no-reboot"]
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "tcg"
    return "kvm" if PROBE_END in console.read_text(errors="replace") else "tcg"


def cidata(file: Path, user_data: bytes, instance: str, host: str) -> None:
    """Make the disk of KubeVirt's ``cloudInitNoCloud`` (pkg/cloud-init: xorrisofs, these names and arguments)."""
    content = {
        "user-data": user_data,
        "meta-data": f'{{"instance-id":"{instance}","local-hostname":"{host}"}}'.encode(),
    }
    _iso(file, "cidata", content)


def context_disk(file: Path, variables: Mapping[str, str]) -> None:
    """Make the disk that OpenNebula makes of a machine's CONTEXT, with the addresses of QEMU's network."""
    network = {"NETWORK": "YES", "ETH0_MAC": MAC, "ETH0_IP": "10.0.2.15", "ETH0_MASK": "255.255.255.0"}
    lines = (f"{name}={shlex.quote(value)}\n" for name, value in {**network, **variables}.items())
    _iso(file, "CONTEXT", {"context.sh": "".join(lines).encode()})


class Machine:
    """A machine that runs until it is killed, also over reboots of the guest; writes to its disk are lost with it."""

    def __init__(self, image: Image, directory: Path, console: Path) -> None:
        self.image = image
        self.console = console
        self.process = Process(directory, "qemu")
        self._directory = directory

    def start(
        self, accelerator: str, seed: Path, broker_port: int, firmware: Firmware | None = None, options: str = ""
    ) -> None:
        """Switch the machine on.

        Args:
            accelerator: accelerator of QEMU.
            seed: the second disk.
            broker_port: port of the broker on the loopback of this machine.
            firmware: identity of the machine.
            options: options for the kernel's command line, if the image has a kernel.
        """
        self.console.unlink(missing_ok=True)
        relay = f"{sys.executable} {RELAY} {broker_port}"
        network = f"user,id=net,restrict=on,guestfwd=tcp:{BROKER}:{BROKER_PORT}-cmd:{relay}"
        command = [
            *_qemu(accelerator, self.console),
            *_disk(self.image.disk, "snapshot=on"),
            *_disk(seed, "format=raw,readonly=on"),
            *("-netdev", network, "-device", f"virtio-net-pci,netdev=net,mac={MAC}"),
            *(firmware.arguments() if firmware else []),
            *_kernel(self.image, f"root=/dev/vda {options}"),
        ]
        self.process.start(command, {**os.environ, "TMPDIR": str(self._directory)})

    def end(self) -> None:
        """Switch the machine off at once."""
        self.process.kill()


def _qemu(accelerator: str, console: Path) -> list[str]:
    return [
        "qemu-system-x86_64",
        *("-nodefaults", "-no-user-config", "-display", "none"),
        *("-machine", "q35", "-accel", accelerator, "-cpu", CPUS.get(accelerator, "max"), "-smp", "2", "-m", "1024"),
        *("-device", "virtio-rng-pci", "-serial", f"file:{console}"),
    ]


def _disk(file: Path, options: str) -> list[str]:
    return ["-drive", f"file={file},if=virtio,{options}"]


def _kernel(image: Image, options: str) -> list[str]:
    if image.kernel is None or image.initrd is None:
        return []
    return ["-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", f"{CONSOLE} {options}"]


def _iso(file: Path, label: str, content: Mapping[str, bytes]) -> None:
    source = file.with_suffix(".files")
    source.mkdir()
    for name, data in content.items():
        (source / name).write_bytes(data)
    command = ["xorrisofs", "-quiet", "-output", file, "-volid", label, "-joliet", "-rock", source]
    subprocess.run(command, capture_output=True, timeout=60, check=True)
