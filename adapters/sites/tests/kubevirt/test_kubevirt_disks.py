# SPDX-License-Identifier: Apache-2.0
"""Root disks that are volumes of their own: what is half made is finished, or taken back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest
from kubevirt_world import KubevirtWorld
from test_kubevirt_site import DISK, create, disks, request

from simyard_sites.base import InvalidSpecError, PermissionDeniedError, QuotaExhaustedError, Site, SiteError
from simyard_sites.kubernetes import watching
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import NotFoundError
from simyard_sites.kubevirt.vmi import DATA_VOLUMES, VMIS

__all__ = ["disks"]
pytestmark = pytest.mark.xdist_group("kubevirt")

READY_SECONDS = 240.0
QUOTA = 'datavolumes.cdi.kubevirt.io "x" is forbidden: exceeded quota: disks, requested: count/datavolumes=1'
RIGHT = 'datavolumes.cdi.kubevirt.io is forbidden: User "x" cannot create resource "datavolumes" in API group "cdi"'
SOURCE = "admission webhook denied the request: source golden/solver does not exist"


@contextmanager
def refused(world: KubevirtWorld, status: HTTPStatus, message: str) -> Iterator[None]:
    """As long as it lasts no disk can be made; the switches of the front are about disks then."""
    plural, world.front._plural = world.front._plural, DATA_VOLUMES.plural
    try:
        with world.front.refusing(status, "Refused", message):
            yield
    finally:
        world.front._plural = plural


@pytest.fixture
async def site(world: KubevirtWorld, disks: KubeClient) -> AsyncIterator[Site]:
    world.simulated.latencies = replace(world.simulated.latencies, scheduling=3600)
    async with aclosing(world.site(**DISK)) as made:
        yield made


async def until_gone(world: KubevirtWorld, name: str) -> None:
    async with asyncio.timeout(READY_SECONDS):
        while True:
            try:
                await world.client.get(VMIS, name, world.namespace)
            except NotFoundError:
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (HTTPStatus.FORBIDDEN, QUOTA, QuotaExhaustedError),
        (HTTPStatus.FORBIDDEN, RIGHT, PermissionDeniedError),
        (HTTPStatus.UNPROCESSABLE_ENTITY, SOURCE, InvalidSpecError),
    ],
    ids=["quota", "right", "source"],
)
async def test_a_machine_whose_disk_is_refused_is_taken_back_and_made_with_it_when_it_can_be(
    world: KubevirtWorld, site: Site, disks: KubeClient, status: HTTPStatus, message: str, kind: type[SiteError]
) -> None:
    asked = request()
    with refused(world, status, message):
        [outcome] = await create(site, asked)
        assert isinstance(outcome.error, kind)
        await until_gone(world, asked.name)
    [outcome] = await create(site, asked)
    assert outcome.error is None
    assert await disks.get(DATA_VOLUMES, asked.name, world.namespace)


async def test_a_machine_whose_disk_was_not_answered_stays_and_gets_it_while_it_is_watched(
    world: KubevirtWorld, site: Site, disks: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet: asyncio.Queue[None] = asyncio.Queue()
    follow = watching.follow

    async def with_quiet_times(*given: Any, **more: Any) -> AsyncIterator[Any]:
        async with aclosing(follow(*given, **more)) as events:
            yield await anext(events)
        while True:
            yield await quiet.get()

    monkeypatch.setattr("simyard_sites.kubernetes.site.follow", with_quiet_times)
    asked = request()
    async with aclosing(site.events()) as events:
        await anext(events)
        later = asyncio.ensure_future(anext(events))
        with refused(world, HTTPStatus.SERVICE_UNAVAILABLE, "CDI's webhook does not answer"):
            [outcome] = await create(site, asked)
            assert outcome.error is not None
            assert outcome.error.retryable
            quiet.put_nowait(None)
        quiet.put_nowait(None)
        async with asyncio.timeout(READY_SECONDS):
            while True:
                try:
                    await disks.get(DATA_VOLUMES, asked.name, world.namespace)
                    break
                except NotFoundError:
                    await asyncio.sleep(0.05)
        later.cancel()
        await asyncio.wait([later])
    assert await world.client.get(VMIS, asked.name, world.namespace)


async def test_what_cannot_be_finished_does_not_break_the_stream_of_events(
    world: KubevirtWorld, site: Site, disks: KubeClient
) -> None:
    [outcome] = await create(site, asked := request())
    assert outcome.error is None
    await disks.delete(DATA_VOLUMES, asked.name, world.namespace)
    with refused(world, HTTPStatus.SERVICE_UNAVAILABLE, "CDI's webhook does not answer"):
        async with aclosing(site.events()) as events:
            await anext(events)
            await world.client.patch(
                VMIS, asked.name, {"metadata": {"labels": {"simyard.dev/pool": "other"}}}, world.namespace
            )
            assert await anext(events)
