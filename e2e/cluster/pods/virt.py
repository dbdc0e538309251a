# SPDX-License-Identifier: Apache-2.0
"""Play the controllers of KubeVirt, its virt-api and the guests of the machines in a pod; no part of it is KubeVirt.

``virt.py NAMESPACE``; certificate and key of the virt-api are in ``/tls``.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from base64 import b64decode
from contextlib import aclosing
from typing import Any

from aiohttp import web
from guests import Guests, document_in

from simyard_simulators.virt import Latencies, SimulatedKubeVirt
from simyard_simulators.virt.simulator import VMIS
from simyard_simulators.virt.subresources import routes
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import ApiError
from simyard_sites.kubernetes.resource import Resource

PORT = 8443
SECRETS = Resource("", "v1", "secrets", "Secret")
GROUP, VERSION = "subresources.kubevirt.io", "v1"
LATENCIES = Latencies(scheduled=0.2, running=0.5)


async def discovery(_: web.Request) -> web.Response:
    """Answer the discovery requests by which kube-apiserver checks that this API is available."""
    return web.json_response(
        {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}", "resources": []}
    )


async def serve_api(simulated: SimulatedKubeVirt) -> None:
    application = web.Application()
    application.add_routes([web.get(f"/apis/{GROUP}/{VERSION}", discovery)])
    application.add_routes([web.route(method, path, handler) for method, path, handler in routes(simulated)])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("/tls/tls.crt", "/tls/tls.key")
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", PORT, ssl_context=context).start()
    print("serving", flush=True)


async def run_guests(client: KubeClient, namespace: str) -> None:
    """Keep exactly the guests of the running machines running."""
    guests = Guests()
    while True:
        try:
            async with aclosing(client.watch(VMIS, namespace, resource_version="")) as events:
                async for event in events:
                    if event.type != "BOOKMARK":
                        await follow(client, guests, event.type, event.object)
        except ApiError as error:
            print(f"the watch has ended: {error}", flush=True)
            await asyncio.sleep(0.5)


async def follow(client: KubeClient, guests: Guests, kind: str, machine: dict[str, Any]) -> None:
    uid, metadata = machine["metadata"]["uid"], machine["metadata"]
    runs = machine.get("status", {}).get("phase") == "Running" and not metadata.get("deletionTimestamp")
    if uid in guests.ids() and (kind == "DELETED" or not runs):
        await guests.end(uid)
    elif uid not in guests.ids() and kind != "DELETED" and runs:
        firmware = machine["spec"]["domain"]["firmware"]
        [volume] = [each for each in machine["spec"]["volumes"] if "cloudInitNoCloud" in each]
        secret = await client.get(SECRETS, volume["cloudInitNoCloud"]["secretRef"]["name"], metadata["namespace"])
        [user_data] = secret["data"].values()
        document = document_in(b64decode(user_data).decode())
        guests.run(uid, document, "--worker", firmware["serial"], "--worker-uid", firmware["uuid"])


async def main(namespace: str) -> None:
    async with (
        await KubeClient.connect() as client,
        SimulatedKubeVirt(client, LATENCIES, namespace=namespace).running() as simulated,
    ):
        await serve_api(simulated)
        await run_guests(client, namespace)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
