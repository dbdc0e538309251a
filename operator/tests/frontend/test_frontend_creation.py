# SPDX-License-Identifier: Apache-2.0
"""Computes and links that clients create."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest
from frontend_objects import ADA, NAMESPACE, Bench, service, site, worker
from hypothesis import given
from hypothesis import strategies as st

from simyard.api import names
from simyard.api.base import Json
from simyard.api.worker import Worker
from simyard.frontend.entities.identifiers import make_object_name
from simyard.occi.errors import OcciError
from simyard.occi.model import Draft, DraftLink, Entity
from simyard.occi.standard import (
    APPLICATION,
    COMPONENT,
    COMPUTE,
    NETWORK,
    NETWORKINTERFACE,
    OPENSTACK_PUBLIC_KEY,
    OPENSTACK_USER_DATA,
    SSH_KEY,
    USER_DATA,
)
from simyard.occi.validation import check_creation
from simyard_sites.kubernetes.errors import UnavailableError

OS_TPL = "http://simyard.dev/occi/os_tpl#"
RESOURCE_TPL = "http://simyard.dev/occi/resource_tpl#"
KIND_LINE = 'Category: compute; scheme="http://schemas.ogf.org/occi/infrastructure#"; class="kind"\n'


def spec_of(bench: Bench, entity: Entity) -> Json:
    raw = bench.stored(names.WORKERS)[make_object_name(entity.id)]
    Worker.model_validate(raw)
    return dict(raw["spec"])


async def test_a_compute_with_everything_becomes_a_worker() -> None:
    bench = Bench().fill()
    made = await bench.create(
        f"{OS_TPL}beam", f"{RESOURCE_TPL}medium", SSH_KEY, USER_DATA,
        occi__core__title="A title, with = and ;", occi__core__summary="why", occi__compute__hostname="My Host!",
        occi__credentials__ssh__publickey="ssh-rsa A\nssh-rsa B\n", occi__compute__userdata="#cloud-config\n",
        occi__compute__architecture="x64", cloud4e__length=12.5,
    )  # fmt: skip
    assert spec_of(bench, made) == {
        "serviceRef": {"name": "beam"},
        "site": "site",
        "title": "A title, with = and ;",
        "summary": "why",
        "hostname": "My Host!",
        "resources": {"cpu": 2, "memory": "4Gi"},
        "userData": "#cloud-config\n",
        "sshPublicKeys": ["ssh-rsa A", "ssh-rsa B"],
        "attributes": {"length": 12.5},
    }
    assert made.path in bench.objects.list_paths("/compute/")
    assert {f"{OS_TPL}beam", f"{RESOURCE_TPL}medium", SSH_KEY, USER_DATA} <= set(made.mixins)
    assert made.title == "A title, with = and ;"
    assert made.attributes["occi.compute.architecture"] == "x64"
    assert made.attributes["occi.compute.hostname"] == "My Host!"
    assert (made.attributes["occi.compute.cores"], made.attributes["occi.compute.memory"]) == (2, 4)
    assert made.attributes["occi.compute.userdata"] == "#cloud-config\n"


async def test_without_templates_the_oldest_service_that_can_be_used_runs_at_its_own_size() -> None:
    newer, broken = service("newer"), service("broken", ready=False)
    newer["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    broken["metadata"]["creationTimestamp"] = "2025-01-01T00:00:00Z"
    bench = Bench().fill(services=iter([newer, broken, service("old")]))
    made = await bench.create()
    assert spec_of(bench, made) == {"serviceRef": {"name": "old"}, "site": "site"}
    assert f"{RESOURCE_TPL}default" in made.mixins


async def test_the_older_forms_of_user_data_and_keys_are_honoured() -> None:
    bench = Bench().fill()
    encoded = base64.b64encode("größe".encode()).decode()
    made = await bench.create(
        OPENSTACK_USER_DATA, OPENSTACK_PUBLIC_KEY,
        org__openstack__compute__user_data=encoded, org__openstack__credentials__publickey__data="ssh-rsa A",
        org__openstack__credentials__publickey__name="mine",
    )  # fmt: skip
    spec = spec_of(bench, made)
    assert (spec["userData"], spec["sshPublicKeys"]) == ("größe", ["ssh-rsa A"])
    with pytest.raises(OcciError, match="base64") as refused:
        await bench.create(OPENSTACK_USER_DATA, org__openstack__compute__user_data="not base64!")
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("mixins", "attributes", "resources"),
    [
        ([], {}, None),
        ([f"{RESOURCE_TPL}default"], {}, None),
        ([f"{RESOURCE_TPL}huge"], {}, {"cpu": 8, "memory": "16Gi"}),
        ([f"{RESOURCE_TPL}small"], {"occi.compute.cores": 3}, {"cpu": 1, "memory": "1Gi"}),
        ([f"{RESOURCE_TPL}default"], {"occi.compute.cores": 3}, {"cpu": 3, "memory": "512Mi"}),
        ([], {"occi.compute.memory": 1.5}, {"cpu": 1, "memory": "1.5Gi"}),
        ([], {"occi.compute.cores": 2, "occi.compute.memory": 4}, {"cpu": 2, "memory": "4Gi"}),
    ],
)
async def test_the_size_is_the_template_s_or_else_what_is_given(
    mixins: list[str], attributes: Json, resources: Json | None
) -> None:
    bench = Bench().fill()
    made = await bench.create(*mixins, **attributes)
    assert spec_of(bench, made).get("resources") == resources


async def test_a_compute_of_a_given_size_is_among_those_of_the_template_of_that_size() -> None:
    bench = Bench().fill()
    made = await bench.create(**{"occi.compute.cores": 2, "occi.compute.memory": 4})
    assert f"{RESOURCE_TPL}medium" in made.mixins
    assert bench.objects.list_paths("/resource_tpl/medium/") == (made.path,)


@pytest.mark.parametrize(
    ("attributes", "status", "says"),
    [
        ({"cloud4e.length": 0}, 400, "cloud4e.length: 0 is below the minimum of 1 mm"),
        ({"cloud4e.state": "idle"}, 403, "cloud4e.state"),
        ({"occi.compute.memory": 0.0001}, 400, "less than 1 MiB"),
        ({"occi.compute.hostname": "h" * 254}, 400, "occi.compute.hostname"),
        ({"occi.compute.architecture": "x64", "cloud4e.unknown": 1}, 400, "cloud4e.unknown"),
    ],
)
async def test_what_does_not_fit_is_refused_and_nothing_is_made(attributes: Json, status: int, says: str) -> None:
    bench = Bench().fill()
    with pytest.raises(OcciError, match=says) as refused:
        await bench.create(f"{OS_TPL}beam", **attributes)
    assert refused.value.status == status
    assert not bench.stored(names.WORKERS)


@given(st.decimals("0.001", "999999", places=4).map(float))
async def test_memory_is_kept_as_it_is_sent(memory: float) -> None:
    bench = Bench().fill()
    made = await bench.create(**{"occi.compute.memory": memory})
    assert made.attributes["occi.compute.memory"] == memory
    rendered = (await bench.ask("GET", made.path)).body
    assert (await bench.ask("PUT", made.path, rendered)).status == 200
    same = await bench.ask("GET", "/compute/", x_occi_attribute=f"occi.compute.memory={memory}")
    assert same.body.decode().count("X-OCCI-Location") == 1
    text = f"{KIND_LINE}X-OCCI-Attribute: occi.compute.memory={memory}"
    assert (await bench.ask("PUT", made.path, text)).status == 200


async def test_user_data_and_keys_are_shown_with_their_mixins() -> None:
    bench = Bench().fill()
    asked = {"occi.credentials.ssh.publickey": "ssh-rsa A", "occi.compute.userdata": "#!x\n"}
    made = await bench.create(SSH_KEY, USER_DATA, **asked)
    assert made.attributes["occi.credentials.ssh.publickey"] == "ssh-rsa A"
    assert made.attributes["occi.compute.userdata"] == "#!x\n"


@pytest.mark.parametrize("kind", [NETWORK, NETWORKINTERFACE, APPLICATION, COMPONENT])
async def test_what_no_site_can_make_is_an_honest_501(kind: str) -> None:
    bench = Bench().fill()
    ends = {"occi.core.source": "/compute/a", "occi.core.target": "/network/b"} if kind == NETWORKINTERFACE else {}
    with pytest.raises(OcciError) as refused:
        await bench.create(kind=kind, **ends)
    assert refused.value.status == 501


async def test_an_inline_link_that_cannot_be_made_makes_no_compute() -> None:
    bench = Bench().fill()
    draft = Draft(COMPUTE, links=(DraftLink("/network/public", kind=NETWORKINTERFACE),))
    with pytest.raises(OcciError) as refused:
        await bench.objects.create(ADA, check_creation(draft, bench.objects.get_model()))
    assert refused.value.status == 501
    assert not bench.stored(names.WORKERS)


async def test_what_was_asked_for_is_shown_as_it_was_asked_for() -> None:
    bench = Bench().fill()
    made = await bench.create(
        f"{RESOURCE_TPL}small", OPENSTACK_PUBLIC_KEY, OPENSTACK_USER_DATA, occi__compute__cores=4,
        org__openstack__credentials__publickey__data="ssh-rsa A", org__openstack__credentials__publickey__name="mine",
        org__openstack__compute__user_data=base64.b64encode(b"x").decode(),
    )  # fmt: skip
    asked = {f"{RESOURCE_TPL}small", OPENSTACK_PUBLIC_KEY, OPENSTACK_USER_DATA}
    assert asked <= set(made.mixins) and {SSH_KEY, USER_DATA}.isdisjoint(made.mixins)
    shown = {name.rpartition("publickey.")[2]: value for name, value in made.attributes.items() if "publickey" in name}
    assert shown == {"data": "ssh-rsa A", "name": "mine"}
    assert made.attributes["occi.compute.cores"] == 1
    assert made.attributes["org.openstack.compute.user_data"] == base64.b64encode(b"x").decode()
    for location in ("/resource_tpl/", "/resource_tpl/small/", "/openstack_public_key/", "/openstack_user_data/"):
        assert bench.objects.list_paths(location) == (made.path,)
    rendered = (await bench.ask("GET", made.path)).body
    assert (await bench.ask("PUT", made.path, rendered)).status == 200
    await bench.objects.delete(ADA, [made])
    assert bench.objects.list_paths("/resource_tpl/small/") == ()


async def test_the_emptiest_site_that_is_permitted_gets_it() -> None:
    bench = Bench().fill()
    bench.put(
        names.CLOUD_SITES,
        site("site", workers=9),
        site("abroad", trust="External"),
        site("closed", allowedNamespaces={"from": "Selected", "names": ["other"]}),
        site("broken", ready=False),
        site("full", workers=5, limits={"maxWorkers": 5}),
        site("cordoned", cordoned=True),
        site("empty", workers=3),
    )
    assert spec_of(bench, await bench.create())["site"] == "empty"
    for name in ("site", "empty"):
        bench.forget(names.CLOUD_SITES, name)
    with pytest.raises(OcciError, match=r"abroad: is External.*full: has its maximum") as refused:
        await bench.create()
    assert refused.value.status == 503


async def test_a_licence_without_a_free_seat_refuses() -> None:
    bench = Bench().fill(services=iter([service(licence={"seats": 3, "taken": 2, "waiting": 0})]))
    await bench.create()
    bench.put(names.SIMULATION_SERVICES, service(licence={"seats": 3, "taken": 2, "waiting": 1}))
    with pytest.raises(OcciError, match="3 seats") as refused:
        await bench.create()
    assert refused.value.status == 409


async def test_a_namespace_without_a_service_says_so() -> None:
    with pytest.raises(OcciError, match="no SimulationService") as refused:
        await Bench().create()
    assert refused.value.status == 409


async def test_a_client_s_id_is_honoured_when_nobody_has_it_and_else_ignored() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker("pool-0", pool="pool"))
    first = await bench.create(**{"occi.core.id": "mine"})
    assert (first.id, first.path) == ("mine", "/compute/mine")
    second = await bench.create(**{"occi.core.id": "mine"})
    third = await bench.create(**{"occi.core.id": "uid-pool-0"})
    assert len({"mine", "uid-pool-0", second.id, third.id}) == 4
    assert bench.entity("/compute/uid-pool-0").attributes["org.simyard.worker"] == "pool-0"


async def test_an_id_that_another_frontend_has_just_given_is_not_given_again() -> None:
    bench = Bench().fill()
    bench.kube.put(names.WORKERS, worker(make_object_name("mine"), annotations={names.ANNOTATION_OCCI_ID: "mine"}))
    made = await bench.create(**{"occi.core.id": "mine"})
    assert made.id != "mine"


@pytest.mark.parametrize("wanted", ["", "mine"])
async def test_a_request_that_is_delivered_twice_makes_one_compute(wanted: str) -> None:
    bench, other = Bench().fill(), Bench().fill()
    other.kube.objects = bench.kube.objects
    given = {"occi.core.id": wanted} if wanted else {}
    first = await bench.create(key="message-1", **given)
    again = await other.create(key="message-1", **given)
    assert first.path == again.path
    assert len(bench.stored(names.WORKERS)) == 1
    third = await other.create(key="message-2", **given)
    assert third.path != first.path


async def test_another_frontend_finds_what_it_has_not_heard_of_with_one_question() -> None:
    bench, other = Bench().fill(), Bench().fill()
    other.kube.objects = bench.kube.objects
    made = await bench.create()
    assert other.objects.get_entity(made.path) is None
    found = await other.objects.find(made.path)
    assert found is not None and found.id == made.id
    other.kube.calls.clear()
    assert await other.objects.find("/compute/nobody") is None
    assert other.kube.calls == [("get", "workers", make_object_name("nobody"))]


async def test_an_api_server_that_is_down_is_503_or_504_and_never_a_404(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench().fill()

    async def fail(*_: Any, **__: Any) -> Json:
        raise UnavailableError(503, "", "etcd is down")

    monkeypatch.setattr(bench.kube, "get", fail)
    with pytest.raises(OcciError) as refused:
        await bench.objects.find("/compute/x")
    assert refused.value.status == 503


async def test_attributes_that_mean_nothing_to_the_platform_are_kept_verbatim() -> None:
    bench = Bench().fill()
    made = await bench.create(**{"occi.compute.speed": 2.5, "occi.compute.share": 7})
    assert (made.attributes["occi.compute.speed"], made.attributes["occi.compute.share"]) == (2.5, 7)
    [raw] = bench.stored(names.WORKERS).values()
    assert orjson.loads(raw["metadata"]["annotations"][names.ANNOTATION_OCCI_ATTRIBUTES]) == {
        "occi.compute.speed": 2.5,
        "occi.compute.share": 7,
    }
    assert raw["metadata"]["namespace"] == NAMESPACE


async def test_put_replaces_what_another_frontend_creates_at_the_same_moment() -> None:
    bench = Bench().fill()

    def faster(verb: str, plural: str, name: str) -> None:
        if verb == "create":
            bench.kube.before = lambda *_: None
            bench.kube.put(names.WORKERS, worker(name, annotations={names.ANNOTATION_OCCI_ID: "mine"}))

    bench.kube.before = faster
    kind = 'Category: compute; scheme="http://schemas.ogf.org/occi/infrastructure#"; class="kind"\n'
    answer = await bench.ask("PUT", "/compute/mine", f'{kind}X-OCCI-Attribute: occi.core.title="Mine"')
    assert answer.status == 200
    [stored] = bench.stored(names.WORKERS).values()
    assert stored["spec"]["title"] == "Mine"
