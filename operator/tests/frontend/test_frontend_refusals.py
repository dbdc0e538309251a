# SPDX-License-Identifier: Apache-2.0
"""Refusals name the OCCI attribute or header that is wrong, and say what to do."""

from __future__ import annotations

import orjson
import pytest
from frontend_objects import Bench, worker

from simyard.api import names
from simyard.occi.standard import COMPUTE, COMPUTE_ACTION_SCHEME

KIND = f'Category: compute; scheme="{COMPUTE.removesuffix("compute")}"; class="kind"\n'
LINK = KIND.replace("compute;", "amqplink;")
STOP = f'Category: stop; scheme="{COMPUTE_ACTION_SCHEME}"; class="action"\n'


@pytest.fixture
def bench() -> Bench:
    """Return a frontend with one compute without a pool."""
    bench = Bench().fill()
    bench.put(names.WORKERS, worker(title="A beam", hostname="h"))
    return bench


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/compute/uid-w", "/compute/", "/-/"])
async def test_an_action_that_is_no_post_is_refused_and_nothing_is_done(bench: Bench, method: str, path: str) -> None:
    answer = await bench.ask(method, f"{path}?action=stop", "" if method in ("GET", "HEAD") else STOP)
    assert (answer.status, b"; send POST to an entity" in answer.body) == (400, True)
    assert "powerState" not in bench.stored(names.WORKERS)["w"]["spec"]


async def test_a_put_of_nothing_changes_nothing(bench: Bench) -> None:
    assert (await bench.ask("PUT", "/compute/uid-w")).status == 400
    assert bench.stored(names.WORKERS)["w"]["spec"]["title"] == "A beam"
    assert (await bench.ask("PUT", "/compute/uid-w", KIND)).status == 200


@pytest.mark.parametrize(
    ("attribute", "length"),
    [("occi.core.title", 257), ("occi.core.summary", 1025), ("occi.compute.hostname", 254)],
)
async def test_a_text_that_is_too_long_is_named_with_its_limit(bench: Bench, attribute: str, length: int) -> None:
    line = f'X-OCCI-Attribute: {attribute}="{"x" * length}"\n'
    for method, path, body in (("POST", "/compute/", KIND + line), ("POST", "/compute/uid-w", line)):
        answer = await bench.ask(method, path, body)
        assert answer.status == 400
        assert f"attribute {attribute}: has {length} characters; at most {length - 1}" in answer.body.decode()
    assert list(bench.stored(names.WORKERS)) == ["w"]


async def test_user_data_keys_links_and_mixins_that_are_too_long_are_named_with_their_limits(bench: Bench) -> None:
    infrastructure = 'scheme="http://schemas.ogf.org/occi/infrastructure'
    queue = 'X-OCCI-Attribute: occi.core.source="/compute/uid-w", occi.amqplink.queue="q"'
    for path, body, said in (
        (
            "/compute/",
            f'{KIND}Category: user_data; {infrastructure}/compute#"; class="mixin"\n'
            f'X-OCCI-Attribute: occi.compute.userdata="{"x" * 65_537}"',
            "occi.compute.userdata: has 65537",
        ),
        (
            "/compute/",
            f'{KIND}Category: ssh_key; {infrastructure}/credentials#"; class="mixin"\n'
            f'X-OCCI-Attribute: occi.credentials.ssh.publickey="{"x" * 8193}"',
            "occi.credentials.ssh.publickey: a key has more than 8192",
        ),
        ("/amqplink/", f'{LINK}{queue}, occi.core.target="a:{"x" * 2048}"', "occi.core.target: has 2050"),
        ("/amqplink/", f'{LINK}{queue}, occi.core.title="{"x" * 1025}"', "occi.core.title: has 1025"),
        (
            "/-/",
            f'Category: t; scheme="http://example.org/t#"; class="mixin"; location="/{"x" * 512}/"',
            "its location has 514 characters; at most 512",
        ),
    ):
        answer = await bench.ask("POST", path, body)
        assert (answer.status, said in answer.body.decode()) == (400, True), answer


async def test_a_refusal_in_a_batch_says_which_entity_it_is_about(bench: Bench) -> None:
    entities = [{"kind": COMPUTE, "attributes": {name: value}} for name, value in (("occi.compute.cores", 1), ("a", 2))]
    answer = await bench.ask(
        "POST", "/compute/", orjson.dumps({"resources": entities}), content_type="application/json"
    )
    assert (answer.status, answer.body.startswith(b"entity 2 of 2: attribute")) == (400, True)
    entities[1] = {"kind": COMPUTE, "attributes": {"occi.core.title": "x" * 300}}
    answer = await bench.ask(
        "POST", "/compute/", orjson.dumps({"resources": entities}), content_type="application/json"
    )
    assert (answer.status, answer.body.startswith(b"entity 2 of 2: attribute")) == (400, True)
    assert list(bench.stored(names.WORKERS)) == ["w"]


async def test_what_nobody_can_make_is_501_also_for_those_who_may_make_nothing(bench: Bench) -> None:
    bench.kube.denied = lambda asked: asked["verb"] == "create"
    for term in ("network", "application"):
        kind = KIND.replace("compute;", f"{term};")
        kind = kind if term == "network" else kind.replace("infrastructure#", "platform#")
        assert (await bench.ask("POST", f"/{term}/", kind)).status == 501
    assert (await bench.ask("POST", "/compute/", KIND)).status == 403


# Deleting collections


async def test_what_is_passed_over_takes_no_right(bench: Bench) -> None:
    allowed = {("delete", "workers"), ("delete", "workerpools"), ("patch", "workerpools")}
    bench.kube.denied = lambda asked: asked["verb"] != "list" and (asked["verb"], asked["resource"]) not in allowed
    assert (await bench.ask("DELETE", "/")).status == 200
    assert bench.objects.list_paths("/") == ("/application/uid-beam", "/network/site")
    assert (await bench.ask("DELETE", "/")).status == 200


async def test_applications_alone_are_refused_with_the_reason(bench: Bench) -> None:
    answer = await bench.ask("DELETE", "/application/")
    assert (answer.status, b"is its vendor's" in answer.body) == (403, True)


# Links


async def test_a_link_of_cloud4e_leads_to_its_queue_also_when_that_is_another_one(bench: Bench) -> None:
    for queue, status in (("one", 201), ("two", 200)):
        ends = f'X-OCCI-Attribute: occi.core.id="x", occi.core.source="/compute/uid-w", occi.amqplink.queue="{queue}"'
        path = "/amqplink/" if status == 201 else "/amqplink/x"
        assert (await bench.ask("POST" if status == 201 else "PUT", path, LINK + ends)).status == status
        link = bench.entity("/amqplink/x")
        assert getattr(link, "target", "") == f"amqp:///{queue}"
