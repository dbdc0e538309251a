# SPDX-License-Identifier: Apache-2.0
"""What Kubernetes is asked, and for how long its answer is used."""

from __future__ import annotations

from typing import cast

import pytest
from frontend_objects import ADA, Bench, metadata, worker

from simyard.api import names
from simyard.api.base import Json
from simyard.frontend.access import PLAIN_SECONDS, Access
from simyard.frontend.backend import Verb
from simyard.frontend.exchange import OcciRequest
from simyard.frontend.handlers import Handlers
from simyard.occi.errors import OcciError
from simyard.occi.standard import AMQPLINK
from simyard.serving.authorization import TTL_SECONDS
from simyard.serving.identity import Identity
from simyard_sites.kubernetes.client import KubeClient


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def bench() -> Bench:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker("w", uid="u1"), worker("v", uid="u2"))
    return bench


def access_of(bench: Bench, clock: Clock) -> Access:
    return Access(cast(KubeClient, bench.kube), bench.objects.view, clock=clock)


async def test_one_answer_serves_for_all_computes_and_never_for_anybody_or_anything_else(bench: Bench) -> None:
    access = access_of(bench, Clock())
    for uid in ("u1", "u2", "u1"):
        await access.may(ADA, Verb.GET, f"/compute/{uid}")
    assert [review["verb"] for review in bench.kube.reviews] == ["get"]
    bench.kube.denied = lambda _: True
    for identity, verb, path in (
        (Identity("eve", "", (), ()), Verb.GET, "/compute/u1"),
        (ADA, Verb.LIST, "/compute/"),
        (ADA, Verb.DELETE, "/compute/u1"),
        (ADA, Verb.GET, "/amqplink/u1-none"),
        (ADA, Verb.LIST, "/-/"),
        (ADA, Verb.CREATE, "/-/"),
    ):
        with pytest.raises(OcciError) as refused:
            await access.may(identity, verb, path)
        assert refused.value.status == 403, (identity.user, verb, path)


async def test_an_answer_is_asked_for_again_after_a_while(bench: Bench) -> None:
    clock = Clock()
    access = access_of(bench, clock)
    await access.may(ADA, Verb.GET, "/compute/u1")
    for seconds in (PLAIN_SECONDS - 0.1, 0.2):
        clock.now += seconds
        await access.may(ADA, Verb.GET, "/compute/u1")
    assert len(bench.kube.reviews) == 1
    clock.now += TTL_SECONDS + PLAIN_SECONDS
    bench.kube.denied = lambda _: True
    with pytest.raises(OcciError):
        await access.may(ADA, Verb.GET, "/compute/u1")


async def test_the_right_to_one_worker_is_not_the_right_to_another(bench: Bench) -> None:
    def denied(asked: Json) -> bool:
        return bool(asked["name"] != "w")

    bench.kube.denied = denied
    access = access_of(bench, Clock())
    for _ in range(2):
        await access.may(ADA, Verb.GET, "/compute/u1")
        with pytest.raises(OcciError):
            await access.may(ADA, Verb.GET, "/compute/u2")


async def test_links_that_clients_made_are_listed_to_who_may_list_them(bench: Bench) -> None:
    handlers = Handlers(bench.objects)
    bench.kube.denied = lambda asked: asked["resource"] == "occilinks"

    async def listed(target: str) -> tuple[int, str]:
        response = await handlers.handle(OcciRequest("GET", target, {"full": "true"}, (), b"", ADA, ""))
        return response.status, response.body.decode()

    assert (await listed("/amqplink/"))[0] == 200
    spec = {
        "kind": AMQPLINK,
        "source": "/compute/u1",
        "target": "amqp:///q",
        "attributes": {"occi.amqplink.queue": "q"},
    }
    bench.put(names.OCCI_LINKS, {"metadata": metadata("l"), "spec": spec})
    assert (await listed("/amqplink/"))[0] == 403
    assert "Category: amqplink" not in (await listed("/"))[1]
    bench.kube.denied = lambda _: False
    response = await handlers.handle(OcciRequest("GET", "/amqplink/", {}, (), b"", Identity("eve", "", (), ()), ""))
    assert response.status == 200 and b"/amqplink/uid-l" in response.body
