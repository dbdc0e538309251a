# SPDX-License-Identifier: Apache-2.0
"""What takes which right in Kubernetes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from frontend_objects import ADA, Bench, link, metadata, worker

from simyard.api import names
from simyard.api.base import Json
from simyard.frontend.backend import Verb
from simyard.occi.errors import OcciError
from simyard.occi.model import Draft
from simyard.occi.standard import AMQPLINK, COMPUTE_ACTION_SCHEME
from simyard.occi.validation import check_update

SCALE = "http://simyard.dev/occi/platform/action#scale"
START_WORKERS = "http://cloud4e/beam/action#start_workers"


async def update(bench: Bench, path: str, *, replace: bool = False, mixins: tuple[str, ...] = (), **given: Any) -> Any:
    entity = bench.entity(path)
    checked = check_update(Draft("", mixins, given), entity, bench.objects.get_model(), replace)
    return await bench.objects.update(ADA, entity, checked, replace=replace)


@pytest.mark.parametrize(
    ("verb", "path", "action", "asked"),
    [
        (Verb.GET, "/compute/uid-w", "", "get workers"),
        (Verb.LIST, "/compute/", "", "list workers"),
        (Verb.LIST, "/amqplink/", "", "list workers"),
        (Verb.LIST, "/network/", "", "list workers"),
        (Verb.LIST, "/application/", "", "list simulationservices"),
        (Verb.LIST, "/component/", "", "list workerpools"),
        (Verb.LIST, "/-/", "", "list simulationservices"),
        (Verb.CREATE, "/-/", "", "create occimixins"),
        (Verb.DELETE, "/-/", "", "delete occimixins"),
        (Verb.UPDATE, "/os_tpl/beam/", "", "patch occimixins"),
        (Verb.CREATE, "/compute/", "", "create workers"),
        (Verb.CREATE, "/amqplink/", "", "create occilinks"),
        (Verb.DELETE, "/compute/uid-w", "", "delete workers"),
        (Verb.DELETE, "/component/uid-pool", "", "delete workerpools"),
        (Verb.UPDATE, "/component/uid-pool", "", "patch workerpools"),
        (Verb.ACT, "/compute/uid-w", f"{COMPUTE_ACTION_SCHEME}stop", "patch workers"),
        (Verb.ACT, "/compute/", "http://cloud4e/beam/action#solve", "create workers/actions/solve"),
        (Verb.ACT, "/amqplink/uid-w", "http://cloud4e/beam/action#solve", "create workers/actions/solve"),
        (Verb.ACT, "/application/uid-beam", START_WORKERS, "patch workerpools"),
        (Verb.ACT, "/component/uid-pool", SCALE, "patch workerpools"),
    ],
)
async def test_what_one_may_do_is_what_one_may_do_to_the_objects_behind(
    verb: Verb, path: str, action: str, asked: str
) -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    await bench.objects.may(ADA, verb, path, action)
    [review] = bench.kube.reviews
    subresource = f"/{review['subresource']}" if review["subresource"] else ""
    assert f"{review['verb']} {review['resource']}{subresource}" == asked
    assert review["group"] == (names.SUBRESOURCES_GROUP if subresource else names.GROUP)
    assert (review["namespace"], review["name"]) == ("lab", "")
    denied = Bench().fill()
    denied.put(names.WORKERS, worker())
    denied.kube.denied = lambda _: True
    with pytest.raises(OcciError, match=f'user "ada" may not {review["verb"]}') as refused:
        await denied.objects.may(ADA, verb, path, action)
    assert refused.value.status == 403


async def test_a_right_to_one_object_only_is_a_right_to_its_entity_only() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker("mine"), worker("other"))
    bench.kube.denied = lambda asked: asked["name"] != "mine"
    await bench.objects.may(ADA, Verb.GET, "/compute/uid-mine")
    for path in ("/compute/uid-other", "/compute/unknown"):
        with pytest.raises(OcciError):
            await bench.objects.may(ADA, Verb.GET, path)


async def test_thousands_of_entities_cost_one_review() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, *(worker(f"w{n}") for n in range(100)))
    for path in bench.objects.list_paths("/compute/"):
        await bench.objects.may(ADA, Verb.GET, path)
    assert len(bench.kube.reviews) == 1


@pytest.mark.parametrize(
    ("given", "denied"),
    [
        ({"occi.core.title": "t"}, ("patch", "workers", "")),
        ({"cloud4e.length": 5}, ("update", "workers", "attributes/length")),
    ],
)
async def test_an_update_takes_the_right_to_what_it_changes(given: Json, denied: tuple[str, str, str]) -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker(values={"length": 3}))
    bench.kube.denied = lambda asked: (asked["verb"], asked["resource"], asked["subresource"]) == denied
    await bench.objects.may(ADA, Verb.UPDATE, "/compute/uid-w")
    with pytest.raises(OcciError) as refused:
        await update(bench, "/compute/uid-w", **given)
    assert refused.value.status == 403


TAG = 'Category: urgent; scheme="http://example.org/tags#"; class="mixin"; location="/urgent/"'
BEARER = 'Category: urgent; scheme="http://example.org/tags#"; class="mixin"'
KIND = 'Category: compute; scheme="http://schemas.ogf.org/occi/infrastructure#"; class="kind"'
LINK_KIND = 'Category: amqplink; scheme="http://schemas.ogf.org/occi/infrastructure#"; class="kind"'
SCALE_LINE = 'Category: scale; scheme="http://simyard.dev/occi/platform/action#"; class="action"'


def without(*denied: str) -> Callable[[Json], bool]:
    """What nobody may: verb and resource."""
    return lambda asked: f"{asked['verb']} {asked['resource']}" in denied


async def test_a_mixin_of_one_s_own_does_not_lend_the_provider_s_actions() -> None:
    bench = Bench().fill()
    bench.kube.denied = without("patch workerpools")
    assert (await bench.ask("POST", "/-/", f'{TAG}; actions="{SCALE}"')).status == 403
    spec = {"scheme": "http://example.org/tags#", "term": "urgent", "location": "/urgent/"}
    action = {"scheme": SCALE.removesuffix("scale"), "term": "scale"}
    bench.put(names.OCCI_MIXINS, {"metadata": metadata("urgent"), "spec": {**spec, "actions": [action]}})
    body = f"{SCALE_LINE}\nX-OCCI-Attribute: replicas=7"
    for path in ("/component/uid-pool", "/component/"):
        assert (await bench.ask("POST", f"{path}?action=scale", body)).status == 403
    assert bench.stored(names.WORKER_POOLS)["pool"]["spec"]["replicas"] == 1


async def test_an_action_of_a_client_s_mixin_takes_the_right_to_the_link_that_has_it() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    bench.put(names.OCCI_LINKS, *(link(name) for name in ("mine", "other")))
    action = 'Category: hurry; scheme="http://example.org/action#"; class="action"'
    await bench.ask("POST", "/-/", f'{TAG}; actions="http://example.org/action#hurry"\n{action}')
    for name in ("mine", "other"):
        await bench.ask("POST", "/urgent/", f"X-OCCI-Location: /amqplink/uid-{name}")
    bench.kube.denied = lambda asked: asked["resource"] == "occilinks" and asked["name"] != "mine"
    bench.forget_reviews()
    statuses = [
        (await bench.ask("POST", f"{path}?action=hurry", action)).status
        for path in ("/amqplink/uid-mine", "/amqplink/uid-other", "/urgent/")
    ]
    assert statuses == [501, 403, 403]  # nobody serves foreign adapters here


async def test_giving_a_mixin_takes_the_right_to_change_it_however_it_is_given() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    assert (await bench.ask("POST", "/-/", TAG)).status == 200
    bench.kube.denied = without("patch occimixins")
    ends = 'X-OCCI-Attribute: occi.core.source="/compute/uid-w", occi.core.target="amqp:///q", occi.amqplink.queue="q"'
    inline = (
        f'Link: <amqp:///q>; rel="a#b"; category="{AMQPLINK} http://example.org/tags#urgent"; occi.amqplink.queue="q"'
    )
    for method, path, body in (
        ("POST", "/urgent/", "X-OCCI-Location: /compute/uid-w"),
        ("POST", "/compute/", f"{KIND}\n{BEARER}"),
        ("PUT", "/compute/new", f"{KIND}\n{BEARER}"),
        ("POST", "/compute/", f"{KIND}\n{inline}"),
        ("POST", "/compute/uid-w", inline),
        ("POST", "/compute/uid-w", BEARER),
        ("POST", "/amqplink/", f"{LINK_KIND}\n{BEARER}\n{ends}"),
    ):
        answer = await bench.ask(method, path, body)
        assert (answer.status, b"occimixins" in answer.body) == (403, True), (method, path, answer)
    assert bench.objects.list_paths("/urgent/") == ()
    assert list(bench.stored(names.WORKERS)) == ["w"] and not bench.stored(names.OCCI_LINKS)


async def test_replacing_a_mixin_takes_the_right_to_change_it_also_if_another_frontend_has_just_made_it() -> None:
    bench = Bench().fill()
    other = bench.beside()
    bench.kube.denied = other.kube.denied = without("patch occimixins")
    assert (await bench.ask("POST", "/-/", TAG)).status == 200
    for frontend in (bench, other):
        assert (await frontend.ask("POST", "/-/", TAG.replace("/urgent/", "/stolen/"))).status == 403
    [stored] = bench.stored(names.OCCI_MIXINS).values()
    assert stored["spec"]["location"] == "/urgent/"


async def test_a_link_from_a_compute_takes_the_right_to_see_it() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    bench.kube.denied = without("get workers")
    ends = 'occi.core.source="/compute/uid-w", occi.core.target="amqp:///q", occi.amqplink.queue="q"'
    answer = await bench.ask("POST", "/amqplink/", f"{LINK_KIND}\nX-OCCI-Attribute: {ends}")
    assert (answer.status, b"workers" in answer.body) == (403, True)
    assert not bench.stored(names.OCCI_LINKS)
