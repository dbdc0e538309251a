# SPDX-License-Identifier: Apache-2.0
"""Run the clients to compare, each in a separate process: a bare S3 client, and the code of `kubectl simyard cp`.

The process reads the access on the first line of standard input, and then an order on each line. It writes a report on
standard output for each order.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import urlsplit

from pydantic import BaseModel

from simyard_bench import machine
from simyard_bench.files.rows import Way

BARE_KEY = "bare/"
"""The first part of the keys of the bare client's objects."""


class Access(BaseModel):
    """The addresses and accounts for both clients. ``secrets`` is the directory with the data of the store's Secret."""

    secrets: Path
    kubeconfig: Path
    namespace: str


class Order(BaseModel):
    """The order for a transfer. The order for an upload has no address."""

    work: Literal["upload", "download", "delete"]
    path: Path
    address: str = ""


class Report(BaseModel):
    """The address of an uploaded file, and the costs of a transfer; the CPU includes that of child processes."""

    address: str
    seconds: float
    cpu_s: float
    rss_mib: float


class Client(Protocol):
    """A client of the store."""

    def upload(self, path: Path) -> str:
        """Upload a file and return its address."""

    def download(self, address: str, path: Path) -> None:
        """Download a file."""

    def delete(self, address: str) -> None:
        """Delete a file of the store."""


class BareClient:
    """An S3 client (obstore) with its default settings, which computes no digest and uses no part of the platform."""

    def __init__(self, access: Access) -> None:
        from obstore.store import S3Store

        values = {path.name: path.read_text() for path in access.secrets.iterdir()}
        self._store = S3Store(
            values["bucket"],
            endpoint=values["endpoint"],
            region=values["region"],
            access_key_id=values["accessKey"],
            secret_access_key=values["secretKey"],
            virtual_hosted_style_request=False,
            client_options={"allow_http": urlsplit(values["endpoint"]).scheme == "http"},
        )
        self._number = 0

    def upload(self, path: Path) -> str:
        """Upload a file under a new key, and return the key."""
        self._number += 1
        key = f"{BARE_KEY}{self._number}"
        self._store.put(key, path)
        return key

    def download(self, address: str, path: Path) -> None:
        """Download an object."""
        with path.open("xb") as file:
            for block in self._store.get(address).stream():
                file.write(block)

    def delete(self, address: str) -> None:
        """Delete an object."""
        self._store.delete(address)


class UserClient:
    """The code behind `kubectl simyard cp`, without the start of its Python process."""

    def __init__(self, access: Access) -> None:
        from simyard.api.names import FILES
        from simyard.cli import files
        from simyard.cli.kubectl import Kubectl

        self._files, self._resource = files, FILES
        self._kubectl = Kubectl((f"--kubeconfig={access.kubeconfig}",), access.namespace)

    def upload(self, path: Path) -> str:
        """Upload a file and return its address."""
        return self._files.upload(self._kubectl, path).address

    def download(self, address: str, path: Path) -> None:
        """Download a file and verify it."""
        self._files.download(self._kubectl, address, path)

    def delete(self, address: str) -> None:
        """Delete a file."""
        self._kubectl.raw("delete", self._resource, address)


CLIENTS: dict[Way, Callable[[Access], Client]] = {Way.BARE: BareClient, Way.USER: UserClient}


def main(way: str) -> None:
    """Carry out the orders of standard input."""
    client = CLIENTS[Way(way)](Access.model_validate_json(sys.stdin.readline()))
    for line in sys.stdin:
        order = Order.model_validate_json(line)
        began, cpu = time.perf_counter(), _cpu_seconds()
        address = _carry_out(client, order)
        report = Report(
            address=address,
            seconds=time.perf_counter() - began,
            cpu_s=_cpu_seconds() - cpu,
            rss_mib=machine.peak_rss_mib(os.getpid()),
        )
        print(report.model_dump_json(), flush=True)


def _carry_out(client: Client, order: Order) -> str:
    match order.work:
        case "upload":
            return client.upload(order.path)
        case "download":
            client.download(order.address, order.path)
        case "delete":
            client.delete(order.address)
    return order.address


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    main(*sys.argv[1:])
