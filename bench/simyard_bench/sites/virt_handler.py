# SPDX-License-Identifier: Apache-2.0
"""Simulate the virt-handlers of all nodes beside KubeVirt's own controllers.

``python -m simyard_bench.sites.virt_handler`` reads a :class:`Script` in JSON from the file that its argument names.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from pathlib import Path

import uvloop
from pydantic import BaseModel

from simyard_bench.occi.load import SERVING
from simyard_simulators.virt.handler import PlayedHandler
from simyard_sites.kubernetes.client import KubeClient

CONNECTIONS = 40


class Script(BaseModel):
    """The account of virt-handler, its serving certificate and port, and the simulated nodes."""

    kubeconfig: Path
    certificate: Path
    key: Path
    port: int
    nodes: tuple[str, ...]


async def _run(script: Script) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(script.certificate, script.key)
    async with (
        await KubeClient.connect(script.kubeconfig, max_connections=CONNECTIONS) as client,
        PlayedHandler(client, script.nodes).serving(script.port, context),
    ):
        print(SERVING, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_run(Script.model_validate_json(Path(sys.argv[1]).read_bytes())))
