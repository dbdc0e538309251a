# SPDX-License-Identifier: Apache-2.0
"""The load of frontends: the frontends that are read, unknown figures, and the metrics that a frontend exports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from aiohttp import web
from prometheus_client import generate_latest

from simyard.api.base import Json
from simyard.fleet.frontends.load import FrontendLoads, read_figures
from simyard.fleet.frontends.occi_broker import OcciBroker
from simyard.fleet.frontends.reconciler import Frontends
from simyard.fleet.recorder import Recorder
from simyard.fleet.registry import Registry
from simyard.frontend.metrics import Transport, count_request
from simyard.manifests.frontend import FrontendTemplate, build_labels
from simyard.messaging.admin import QueueInfo
from simyard.messaging.errors import BrokerUnavailableError
from simyard.messaging.occi_topology import name_request_queue
from simyard.plan.frontends import Figures, Load, ReplicaLoad
from simyard.plan.service import read_service
from simyard.roles.health import LATE
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import UnavailableError
from simyard_sites.kubernetes.resource import Resource

BEAM, PLATE = ("plant", "beam"), ("plant", "plate")
ENDPOINTS = {BEAM: "https://beam", PLATE: "https://plate"}


@dataclass
class Pods:
    """An API server that has nothing but pods."""

    pods: list[Json] = field(default_factory=list)
    away: bool = False

    async def list_all(self, resource: Resource, namespace: str, *, labels: str) -> tuple[list[Json], str]:
        assert (resource.plural, namespace) == ("pods", "platform")
        if self.away:
            raise UnavailableError(0, "", "no answer")
        return self.pods, "1"


@dataclass
class Queues:
    """A broker with shared queues."""

    vhost: str = "clients"
    ready: dict[str, int | None] = field(default_factory=dict)
    away: bool = False

    async def list_queues(self) -> Mapping[str, QueueInfo]:
        if self.away:
            raise BrokerUnavailableError("no answer")
        return {name_request_queue(endpoint): QueueInfo(None, None, depth) for endpoint, depth in self.ready.items()}


def pod(uid: str, address: str, *, ready: str = "True", of: tuple[str, str] = BEAM, **metadata: Any) -> Json:
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready}]
    return {
        "metadata": {"uid": uid, "labels": build_labels(*of), **metadata},
        "status": {"podIP": address, "conditions": conditions},
    }


@asynccontextmanager
async def loads(pods: Pods, queues: Queues) -> AsyncIterator[FrontendLoads]:
    """Run with a frontend at 127.0.8.1 that answers 50 reads in 5 s between two readings."""
    looks = 0

    async def metrics(_: web.Request) -> web.Response:
        nonlocal looks
        looks += 1
        text = "\n".join(
            (
                f'simyard_occi_request_duration_seconds_count{{method="GET"}} {50 * looks}',
                f'simyard_occi_request_duration_seconds_sum{{method="GET"}} {5 * looks}',
                f"simyard_loop_late_seconds_count {10 * looks}",
                f"simyard_loop_late_seconds_sum {looks}",
                "",
            )
        )
        return web.Response(text=text)

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.8.1", 0).start()
        client, broker = cast(KubeClient, pods), cast(OcciBroker, queues)
        async with FrontendLoads(client, "platform", broker, port=int(runner.addresses[0][1])) as made:
            yield made
    finally:
        await runner.cleanup()


async def test_each_ready_frontend_of_those_that_are_asked_for_is_read() -> None:
    pods = Pods(
        [
            pod("answers", "127.0.8.1"),
            pod("silent", "127.0.8.2"),
            pod("starting", "127.0.8.1", ready="False"),
            pod("ending", "127.0.8.1", deletionTimestamp="2026-01-01T12:00:00Z"),
            pod("without an address", ""),
            pod("of another service", "127.0.8.1", of=("plant", "other")),
        ]
    )
    async with loads(pods, Queues(ready={"https://beam": 7, "https://plate": None})) as made:
        first = await made.look(ENDPOINTS)
        assert first[BEAM] == Load(7, (None, None)), "there is nothing yet to compare it with"
        second = await made.look(ENDPOINTS)
    assert second[BEAM] == Load(7, (ReplicaLoad(50, pytest.approx(0.2)), None))
    assert second[PLATE] == Load(None, ())


async def test_who_does_not_answer_makes_the_load_unknown_and_not_small() -> None:
    pods, queues = Pods([pod("answers", "127.0.8.1")]), Queues(ready={"https://beam": 7})
    async with loads(pods, queues) as made:
        await made.look({BEAM: "https://beam"})
        pods.away = True
        assert await made.look({BEAM: "https://beam"}) == {BEAM: Load(7, ())}
        pods.away, queues.away = False, True
        await made.look({BEAM: "https://beam"})
        assert await made.look({BEAM: "https://beam"}) == {BEAM: Load(None, (ReplicaLoad(50, pytest.approx(0.2)),))}


async def test_a_frontend_that_is_too_busy_to_answer_is_silent_only_if_it_ever_answered() -> None:
    pods, looks = Pods([pod("answers", "127.0.8.1"), pod("never", "127.0.8.1")]), {BEAM: "https://beam"}
    async with loads(pods, Queues(ready={"https://beam": 7})) as made:
        read = made._read

        async def times_out(one: Any) -> tuple[Figures | None, bool]:
            return (None, True) if one.uid == "never" or is_busy else await read(one)

        made._read = times_out  # type: ignore[method-assign]
        is_busy = False
        await made.look(looks)
        is_busy = True
        for _ in range(2):
            assert await made.look(looks) == {BEAM: Load(7, (None, None), silent=1)}
        is_busy = False
        found = (await made.look(looks))[BEAM]
    assert found.silent == 0 and found.replicas[0] == ReplicaLoad(50, pytest.approx(0.2)) and not found.is_complete


async def test_without_amqp_clients_no_request_waits() -> None:
    async with loads(Pods(), Queues(vhost="", away=True)) as made:
        assert await made.look({BEAM: "https://beam"}) == {BEAM: Load(0, ())}


async def test_until_the_deployments_are_known_as_many_are_ready_as_the_status_says() -> None:
    nobody = cast(KubeClient, None)
    registry, queues = Registry(nobody), cast(OcciBroker, Queues())
    made = FrontendLoads(nobody, "platform", queues)
    template = FrontendTemplate("image", "platform", "tls", "platform.svc")
    frontends = Frontends(registry, Recorder(nobody, "test"), queues, made, "platform", template)
    service = read_service(
        {
            "metadata": {"namespace": "plant", "name": "beam", "uid": "u"},
            "spec": {"interface": {}, "connector": {"python": {"class": "m:C"}}, "frontend": {"replicas": 3}},
            "status": {"frontends": {"desired": 3, "ready": 3}},
        }
    ).service
    assert frontends.get_view(service).ready == 3
    for cache in frontends.caches:
        cache.synced.set()
    assert frontends.get_view(service).ready == 0


def shown() -> Figures:
    return read_figures(generate_latest().decode())


def test_reads_and_the_loops_lateness_count_and_what_waits_for_workers_does_not() -> None:
    before = shown()
    for method, seconds in (("GET", 0.25), ("HEAD", 0.5), ("POST", 30.0), ("DELETE", 5.0)):
        count_request(Transport.HTTP, method, 200, seconds)
    count_request(Transport.AMQP, "GET", 404, 1.0)
    LATE.observe(2.0)
    after = shown()
    assert after.reads - before.reads == 3
    assert after.read_seconds - before.read_seconds == pytest.approx(1.75)
    assert after.ticks - before.ticks == 1
    assert after.late_seconds - before.late_seconds == pytest.approx(2.0)


def test_the_time_in_which_a_read_waits_for_an_adapter_does_not_count() -> None:
    lines = (
        'simyard_occi_request_duration_seconds_count{transport="http",method="GET",code="200"} 20.0',
        'simyard_occi_request_duration_seconds_sum{transport="http",method="GET",code="200"} 20.5',
        "simyard_occi_refresh_seconds_count 20.0",
        "simyard_occi_refresh_seconds_sum 20.0",
    )
    assert read_figures("\n".join([*lines, ""])) == Figures(20, 0.5, 0, 0.0)


def test_a_process_that_shows_other_things_has_no_figures() -> None:
    assert read_figures("# HELP up It is.\nup 1\nsimyard_loop_late_seconds_created 7\n") == Figures(0, 0.0, 0, 0.0)


@pytest.mark.parametrize("line", ["simyard_loop_late_seconds_sum much", "simyard_loop_late_seconds_count NaN"])
def test_what_is_no_number_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_figures(f"{line}\n")
