# SPDX-License-Identifier: Apache-2.0
"""Run KubeVirt's simulated controllers as a process: ``python -m simyard_bench.sites.virt KUBECONFIG``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import uvloop

from simyard_bench.occi.load import SERVING
from simyard_simulators.virt import SimulatedKubeVirt
from simyard_sites.kubernetes.client import KubeClient

CONNECTIONS = 40


async def _run(kubeconfig: Path) -> None:
    async with (
        await KubeClient.connect(kubeconfig, max_connections=CONNECTIONS) as client,
        SimulatedKubeVirt(client).running(),
    ):
        print(SERVING, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_run(Path(sys.argv[1])))
