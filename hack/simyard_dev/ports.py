# SPDX-License-Identifier: Apache-2.0
"""Choose loopback ports once and remember them per directory, so that addresses survive a restart."""

import json
import random
import socket
import time
from collections.abc import Collection
from pathlib import Path

from simyard_dev.files import write_whole

# The ephemeral range (32768 and up on Linux) is left out: an outgoing connection may take any port of it.
PORT_RANGE = range(20000, 32000)
LOOPBACK = "127.0.0.1"
FREE_SECONDS = 5.0
POLL_SECONDS = 0.05


class Ports:
    """The ports of one part of an environment, by name."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "ports.json"

    def __getitem__(self, name: str) -> int:
        return self._load()[name]

    def reserve(self, name: str) -> int:
        """Return the stored port with this name if it becomes free in time; else choose a new port and store it.

        Call this while the server of the port does not run. After a process was killed, its port can be in use for a
        moment, because clients connect to it again and again.
        """
        ports = self._load()
        if name not in ports or not _becomes_free(ports[name]):
            others = ports.values()
            ports[name] = next(port for port in _candidates(others) if _is_free(port))
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._file, json.dumps(ports, indent=2))
        return ports[name]

    def _load(self) -> dict[str, int]:
        try:
            ports: dict[str, int] = json.loads(self._file.read_text())
        except FileNotFoundError:
            return {}
        return ports


def is_listening(port: int) -> bool:
    """Return whether a server accepts connections on the loopback port."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True


def _candidates(others: Collection[int]) -> list[int]:
    return [port for port in random.sample(PORT_RANGE, len(PORT_RANGE)) if port not in others]


def _becomes_free(port: int) -> bool:
    deadline = time.monotonic() + FREE_SECONDS
    while not _is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
