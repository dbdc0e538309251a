# SPDX-License-Identifier: Apache-2.0
"""The leader, as observed by processes that wait for the Lease."""

from __future__ import annotations

import asyncio
import secrets

from simyard.kube.lease import Lease
from simyard_dev.controlplane import ControlPlane
from simyard_sites.kubernetes.client import KubeClient


async def test_who_waits_says_who_leads_and_that_nobody_does_when_that_was_not_seen_for_long(
    control_plane: ControlPlane,
) -> None:
    time, name = [1000.0], f"lease-{secrets.token_hex(4)}"

    def lease(identity: str) -> Lease:
        return Lease(
            client,
            namespace="default",
            name=name,
            identity=identity,
            duration_seconds=15,
            renew_seconds=0.05,
            clock=lambda: time[0],
        )

    async with await KubeClient.connect(control_plane.kubeconfig) as client:
        await lease("first").acquire()
        second = lease("second")
        assert second.leader == "another one", "the second process has not seen the holder's name yet"
        waiting = asyncio.create_task(second.acquire())
        async with asyncio.timeout(240):
            while second.leader != "first":  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.wait([waiting])
        time[0] += 15
        assert second.leader is None
