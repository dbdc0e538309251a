# SPDX-License-Identifier: Apache-2.0
"""Build requests for machines as a pool does, each with a complete bootstrap document."""

from __future__ import annotations

import uuid

from simyard_adapter.bootstrap import Bootstrap, BrokerAddress
from simyard_adapter.python_backend import load_class
from simyard_bench.workload import PROGRAM, PROGRAM_CLASS
from simyard_sites.base import MachineRequest, Owner

IMAGE = "registry.example.com/solver:3"
MEMORY_MIB = 64
CPU_MILLIS = 100
_INTERFACE = load_class(PROGRAM_CLASS, PROGRAM.parent).interface
_CONNECTOR = {"python": {"class": PROGRAM_CLASS}}
_BROKER = BrokerAddress("broker.example.com", 5671, "simyard", "pool", "p" * 32, "c" * 1200)
"""The address of a broker. Its password and certificate are as long as real ones."""


def machine_requests(pool: str, namespace: str, n: int, image: str = IMAGE) -> list[MachineRequest]:
    """Return the requests for a pool of ``n`` workers; image "" means the site's own image."""
    return [_request(f"{pool}-{number}", pool, namespace, image) for number in range(n)]


def _request(worker: str, pool: str, namespace: str, image: str) -> MachineRequest:
    uid = str(uuid.uuid4())
    document = Bootstrap(
        namespace=namespace,
        worker=worker,
        worker_uid=uid,
        service="bench",
        pool=pool,
        broker=_BROKER,
        interface=_INTERFACE,
        connector=_CONNECTOR,
        files={PROGRAM.name: PROGRAM.read_text()},
    )
    return MachineRequest(
        name=f"{worker}-{uid[:8]}",
        owner=Owner(namespace, worker, uid, pool),
        bootstrap=document.to_bytes(),
        memory_mib=MEMORY_MIB,
        image=image,
        cpu_millis=CPU_MILLIS,
    )
