# SPDX-License-Identifier: Apache-2.0
"""A machine's life as kwok plays it: a second simulation, written apart from ours, tells the site the same story.

The site is in the control plane's own cluster here, as its administrator.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path

import pytest
from test_kubevirt_site import create, request

from simyard_dev import tools
from simyard_dev.controlplane import ControlPlane
from simyard_dev.processes import Process
from simyard_dev.providers import complete_kubevirt
from simyard_sites.base import Changed, Gone, MachineState, SiteConfig, SiteEvent, Snapshot, Stage
from simyard_sites.kubevirt import KubevirtSite

DEADLINE_SECONDS = 240.0


@pytest.fixture
def namespace(kubevirt_control_plane: ControlPlane, simyard_directory: Path) -> Iterator[str]:
    """A namespace, while kwok plays KubeVirt in the whole cluster."""
    name = f"kwok-{uuid.uuid4().hex[:8]}"
    kubevirt_control_plane.kubectl("create", "namespace", name)
    kwok = Process(simyard_directory, f"kwok-{name}")
    with as_file(files("simyard_simulators.virt") / "kwok-stages.yaml") as stages:
        config = [f"--kubeconfig={kubevirt_control_plane.kubeconfig}", f"--config={stages}", "--manage-all-nodes=false"]
        nodes = ["--manage-nodes-with-label-selector=simyard.dev/nobody=true"]
        kwok.start([tools.ensure(["kwok"])["kwok"], *config, *nodes])
        yield name
    kwok.stop(0)
    kubevirt_control_plane.kubectl("delete", "namespace", name, "--wait=false")


@pytest.mark.xdist_group("kubevirt")
async def test_a_machine_from_its_creation_to_its_end(kubevirt_control_plane: ControlPlane, namespace: str) -> None:
    config = SiteConfig("own", complete_kubevirt(namespace=namespace), kubeconfig=kubevirt_control_plane.kubeconfig)
    site, told, asked = KubevirtSite(config), list[SiteEvent](), request()
    events = site.events()
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            async for event in events:
                told.append(event)
                if isinstance(event, Snapshot):
                    assert [outcome.error for outcome in await create(site, asked)] == [None]
                elif isinstance(event, Changed) and event.machine.state is MachineState.RUNNING:
                    running = event.machine
                    assert [outcome.error async for outcome in site.delete([running.id])] == [None]
                elif isinstance(event, Gone):
                    break
    finally:
        await events.aclose()
        await site.aclose()
    assert running.owner == asked.owner
    assert list(running.entered) == [Stage.PENDING, Stage.PROLOG, Stage.BOOT, Stage.RUNNING]
    assert told[-1] == Gone(f"{namespace}/{asked.name}", asked.name)
