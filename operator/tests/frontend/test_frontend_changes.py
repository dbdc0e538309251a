# SPDX-License-Identifier: Apache-2.0
"""Updates and deletions."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from frontend_objects import ADA, Bench, pool, service, worker

from simyard.api import names
from simyard.api.base import Json
from simyard.occi.errors import OcciError
from simyard.occi.model import Draft
from simyard.occi.standard import SSH_KEY
from simyard.occi.validation import check_update
from simyard_sites.kubernetes.resource import Resource


async def update(bench: Bench, path: str, *, replace: bool = False, mixins: tuple[str, ...] = (), **given: Any) -> Any:
    entity = bench.entity(path)
    checked = check_update(Draft("", mixins, given), entity, bench.objects.get_model(), replace)
    return await bench.objects.update(ADA, entity, checked, replace=replace)


def spec(bench: Bench, resource: Resource, name: str) -> Json:
    return dict(bench.stored(resource)[name]["spec"])


async def test_texts_and_host_name_of_a_compute_change_in_its_worker() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker(title="old", hostname="old", summary="kept"))
    changed = await update(
        bench, "/compute/uid-w", **{"occi.core.title": "new", "occi.compute.hostname": "h", "occi.compute.speed": 2}
    )
    assert (changed.title, changed.summary) == ("new", "kept")
    assert (changed.attributes["occi.compute.hostname"], changed.attributes["occi.compute.speed"]) == ("h", 2)
    replaced = await update(bench, "/compute/uid-w", replace=True, **{"occi.core.title": "only"})
    assert (replaced.title, replaced.summary) == ("only", "")
    assert replaced.attributes["occi.compute.hostname"] == "w"
    assert "occi.compute.speed" not in replaced.attributes


async def test_a_rendering_that_is_sent_back_changes_nothing() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker(values={"length": 3, "state": "idle"}))
    shown = bench.entity("/compute/uid-w")
    bench.kube.calls.clear()
    given = {**shown.attributes, "occi.core.id": shown.id, "occi.core.title": shown.title}
    assert await update(bench, "/compute/uid-w", replace=True, mixins=shown.mixins, **given) == shown
    assert [call for call in bench.kube.calls if call[0] != "get"] == []


@pytest.mark.parametrize(
    ("given", "mixins", "status"),
    [
        ({"occi.compute.cores": 4}, (), 409),
        ({"occi.compute.memory": 4}, (), 409),
        ({}, ("http://simyard.dev/occi/resource_tpl#huge",), 409),
        ({"occi.credentials.ssh.publickey": "ssh-rsa A"}, (SSH_KEY,), 409),
        ({"occi.compute.state": "inactive"}, (), 403),
    ],
)
async def test_what_no_site_can_change_is_refused_and_nothing_is_changed(
    given: Json, mixins: tuple[str, ...], status: int
) -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    with pytest.raises(OcciError) as refused:
        await update(bench, "/compute/uid-w", mixins=mixins, **given, **{"occi.core.title": "new"})
    assert refused.value.status == status
    assert "title" not in spec(bench, names.WORKERS, "w")


SIZE = {"cpu": 2, "memory": "4Gi"}
TEMPLATE = "http://simyard.dev/occi/resource_tpl#"


def templates(entity: Any) -> list[str]:
    return [mixin.removeprefix(TEMPLATE) for mixin in entity.mixins if mixin.startswith(TEMPLATE)]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(
    ("own", "asked", "new"),
    [
        (None, "", "medium"),
        (None, "default", "medium"),
        (SIZE, "medium", "default"),
        (SIZE, "", "default"),
        ({"cpu": "1500m", "memory": "4096Mi"}, "", "default"),
    ],
)
async def test_a_template_of_the_same_size_replaces_the_one_before_and_the_machine_stays(
    own: Json | None, asked: str, new: str, replace: bool
) -> None:
    bench = Bench().fill(services=iter([service(resources=SIZE)]))
    annotations = {names.ANNOTATION_OCCI_MIXINS: TEMPLATE + asked} if asked else {}
    bench.put(names.WORKERS, worker(annotations=annotations, **({"resources": own} if own else {})))
    before = spec(bench, names.WORKERS, "w")
    bench.kube.denied = lambda review: review["resource"] == names.OCCI_MIXINS.plural
    changed = await update(bench, "/compute/uid-w", replace=replace, mixins=(TEMPLATE + new,))
    assert templates(changed) == [new]
    stored = bench.stored(names.WORKERS)["w"]
    assert stored["metadata"]["annotations"][names.ANNOTATION_OCCI_MIXINS] == TEMPLATE + new
    assert stored["spec"] == before
    for term in ("medium", "default"):
        assert bench.objects.list_paths(f"/resource_tpl/{term}/") == (("/compute/uid-w",) if term == new else ())
    bench.forget(names.WORKERS, "w")
    assert bench.objects.list_paths("/compute/") == bench.objects.list_paths(f"/resource_tpl/{new}/") == ()


async def test_of_two_frontends_that_replace_a_template_at_once_one_template_is_left() -> None:
    bench = Bench().fill(services=iter([service(resources=SIZE)]))
    bench.put(names.WORKERS, worker())
    other = bench.beside()
    other.hear(names.WORKERS, *bench.stored(names.WORKERS).values())
    await update(bench, "/compute/uid-w", mixins=(TEMPLATE + "medium",))
    assert templates(await update(other, "/compute/uid-w", mixins=(TEMPLATE + "medium",))) == ["medium"]


@pytest.mark.parametrize(
    ("own", "new", "possible"),
    [
        (SIZE, "huge", "its template may be medium or default;"),
        ({"cpu": 2, "memory": "8Gi"}, "default", "no template has its size;"),
        (None, "small", "its template may be medium or default;"),
    ],
)
async def test_a_template_of_another_size_is_refused_and_the_refusal_says_what_is_possible(
    own: Json | None, new: str, possible: str
) -> None:
    bench = Bench().fill(services=iter([service(resources=SIZE)]))
    bench.put(names.WORKERS, worker(**({"resources": own} if own else {})))
    before = copy.deepcopy(bench.stored(names.WORKERS)["w"])
    with pytest.raises(OcciError, match="no site can resize a machine") as refused:
        await update(bench, "/compute/uid-w", mixins=(TEMPLATE + new,), **{"occi.core.title": "new"})
    assert refused.value.status == 409
    assert possible in refused.value.message
    assert "create another compute with the template" in refused.value.message
    assert bench.stored(names.WORKERS)["w"] == before


async def test_an_application_is_described_by_its_vendor() -> None:
    bench = Bench().fill()
    with pytest.raises(OcciError) as refused:
        await update(bench, "/application/uid-beam", **{"occi.app.name": "Mine"})
    assert refused.value.status == 403
    with pytest.raises(OcciError) as refused:
        await bench.objects.delete(ADA, [bench.entity("/application/uid-beam")])
    assert refused.value.status == 403


async def test_the_amqplink_of_a_compute_takes_what_is_the_service_s_and_nothing_of_the_compute() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker(title="A beam", hostname="h"))
    before = copy.deepcopy(bench.stored(names.WORKERS)["w"])
    line = 'Category: amqplink; scheme="http://schemas.ogf.org/occi/infrastructure#"; class="kind"\n'
    queue = (
        f'X-OCCI-Attribute: occi.amqplink.queue="{bench.entity("/amqplink/uid-w").attributes["occi.amqplink.queue"]}"'
    )
    for method, body, status in (
        ("POST", 'X-OCCI-Attribute: occi.core.title="Mine"', 403),
        ("POST", 'X-OCCI-Attribute: occi.amqplink.queue="evil"', 403),
        ("PUT", line + queue.replace('"simyard', '"evil'), 403),
        ("PUT", line + queue, 200),
        ("PUT", (await bench.ask("GET", "/amqplink/uid-w")).body, 200),
    ):
        answer = await bench.ask(method, "/amqplink/uid-w", body)
        assert answer.status == status, (method, body, answer.body)
        assert status == 200 or b"/compute/uid-w" in answer.body
        assert bench.stored(names.WORKERS)["w"] == before


async def test_the_amqplink_of_a_compute_gets_a_mixin_with_its_defaults_but_keeps_no_attributes_of_it() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    mixin = {"term": "urgent", "scheme": "http://example.org/tags#", "location": "/urgent/"}
    due = {"org.example.due": {"default": "today"}}
    body = orjson.dumps({"mixins": [{**mixin, "attributes": due}]})
    assert (await bench.ask("POST", "/-/", body, content_type="application/json")).status == 200
    line = 'Category: urgent; scheme="http://example.org/tags#"; class="mixin"\n'
    given = await bench.ask("POST", "/amqplink/uid-w", line + 'X-OCCI-Attribute: org.example.due="tomorrow"')
    assert (given.status, bench.objects.list_paths("/urgent/")) == (403, ())
    assert (await bench.ask("POST", "/amqplink/uid-w", line)).status == 200
    assert bench.objects.list_paths("/urgent/") == ("/amqplink/uid-w",)


# Deletion


async def test_a_compute_of_a_pool_is_marked_its_pool_scaled_and_then_it_is_deleted() -> None:
    bench = Bench().fill()
    bench.put(names.WORKER_POOLS, pool(replicas=3))
    bench.put(names.WORKERS, *(worker(f"pool-{n}", pool="pool") for n in range(3)))
    bench.kube.calls.clear()
    await bench.objects.delete(ADA, [bench.entity("/compute/uid-pool-1")])
    assert bench.kube.calls == [
        ("patch", "workers", "pool-1"),
        ("patch", "workerpools", "pool"),
        ("delete", "workers", "pool-1"),
    ]
    assert spec(bench, names.WORKER_POOLS, "pool")["replicas"] == 2
    assert bench.objects.get_entity("/compute/uid-pool-1") is None


async def test_all_computes_of_a_pool_go_in_one_step_of_its_scale() -> None:
    bench = Bench().fill()
    bench.put(names.WORKER_POOLS, pool(replicas=3))
    bench.put(
        names.WORKERS,
        *(worker(f"pool-{n}", pool="pool") for n in range(3)),
        worker("leaving", pool="pool", ready=False, reason="Draining"),
        worker("alone"),
    )
    bench.kube.calls.clear()
    await bench.objects.delete(ADA, list(bench.objects.list_entities(bench.objects.list_paths("/compute/"))))
    assert spec(bench, names.WORKER_POOLS, "pool")["replicas"] == 0
    assert [call for call in bench.kube.calls if call[1] == "workerpools"] == [("patch", "workerpools", "pool")]
    assert not bench.stored(names.WORKERS)
    assert bench.objects.list_paths("/compute/") == ()


async def test_deleting_everything_leaves_what_is_the_vendor_s() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker("pool-0", pool="pool"), worker("alone"))
    await bench.objects.delete(ADA, list(bench.objects.list_entities(bench.objects.list_paths("/"))))
    assert bench.objects.list_paths("/") == ("/application/uid-beam", "/network/site")
    assert not bench.stored(names.WORKERS) and not bench.stored(names.WORKER_POOLS)


async def test_the_pool_is_scaled_by_the_right_number_whoever_scales_it_meanwhile() -> None:
    bench = Bench().fill()
    bench.put(names.WORKER_POOLS, pool(replicas=5))
    bench.put(names.WORKERS, *(worker(f"pool-{n}", pool="pool") for n in range(5)))
    others = iter([7, 9])

    def interfere(verb: str, plural: str, name: str) -> None:
        if plural == "workerpools" and (replicas := next(others, None)) is not None:
            raw = bench.kube.touch(names.WORKER_POOLS, "pool")
            raw["spec"]["replicas"] = replicas

    bench.kube.before = interfere
    await bench.objects.delete(ADA, [bench.entity("/compute/uid-pool-0"), bench.entity("/compute/uid-pool-1")])
    assert spec(bench, names.WORKER_POOLS, "pool")["replicas"] == 7


async def test_whoever_may_not_scale_the_pool_cannot_delete_one_of_its_computes() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker("pool-0", pool="pool"), worker("alone"))
    bench.kube.denied = lambda asked: asked["resource"] == "workerpools"
    with pytest.raises(OcciError) as refused:
        await bench.objects.delete(ADA, [bench.entity("/compute/uid-pool-0")])
    assert refused.value.status == 403
    assert "pool-0" in bench.stored(names.WORKERS)
    await bench.objects.delete(ADA, [bench.entity("/compute/uid-alone")])
    assert "alone" not in bench.stored(names.WORKERS)


async def test_what_belongs_to_another_entity_is_not_deleted_alone() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    for path in ("/amqplink/uid-w", "/componentlink/uid-pool"):
        with pytest.raises(OcciError) as refused:
            await bench.objects.delete(ADA, [bench.entity(path)])
        assert refused.value.status == 403
    await bench.objects.delete(ADA, [bench.entity("/component/uid-pool")])
    assert not bench.stored(names.WORKER_POOLS)


async def test_deleting_what_is_gone_already_is_no_error() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    shown = bench.entity("/compute/uid-w")
    del bench.kube.objects["workers", "w"]
    await bench.objects.delete(ADA, [shown])
    assert bench.objects.get_entity(shown.path) is None
    await bench.objects.delete(ADA, [shown])
