# SPDX-License-Identifier: Apache-2.0
"""Simulates the aggregated API of KubeVirt (``subresources.kubevirt.io``), as far as sites use it."""

from __future__ import annotations

from http import HTTPStatus

from aiohttp import web

from simyard_simulators.kube_front import Handler, refusal
from simyard_simulators.virt.simulator import SimulatedKubeVirt

VERSION = "v1.9.0"
_GROUP = "/apis/subresources.kubevirt.io/v1"
_MACHINE = f"{_GROUP}/namespaces/{{namespace}}/virtualmachineinstances/{{name}}"


def routes(simulated: SimulatedKubeVirt) -> tuple[tuple[str, str, Handler], ...]:
    """Return the routes of this API for :class:`~simyard_simulators.kube_front.KubeFront`, open to all."""

    async def version(_: web.Request) -> web.StreamResponse:
        return web.json_response({"gitVersion": f"{VERSION}-simulated"})

    async def act(request: web.Request) -> web.StreamResponse:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        verb = request.match_info["verb"]
        if not simulated.has(namespace, name):
            message = f'virtualmachineinstance.kubevirt.io "{name}" not found'
            return refusal(HTTPStatus.NOT_FOUND, "NotFound", message)
        if await (simulated.pause if verb == "pause" else simulated.unpause)(namespace, name):
            return web.Response(status=HTTPStatus.ACCEPTED)
        message = f"VMI {name}: {verb} is not possible now"
        return refusal(HTTPStatus.CONFLICT, "Conflict", message)

    return (
        ("GET", f"{_GROUP}/version", version),
        ("PUT", f"{_MACHINE}/{{verb:pause|unpause}}", act),
    )
