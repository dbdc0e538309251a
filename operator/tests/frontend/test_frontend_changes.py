"""Updates, deletions, actions and rights."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from frontend_objects import ADA, Bench, pool, service, worker

from simyard.api import names
from simyard.api.base import Json
from simyard.frontend import actions, scaling
from simyard.frontend.backend import Verb
from simyard.occi.errors import OcciError
from simyard.occi.model import Draft
from simyard.occi.standard import (
    APPLICATION_ACTION_SCHEME,
    COMPONENT_ACTION_SCHEME,
    COMPUTE_ACTION_SCHEME,
    SSH_KEY,
)
from simyard.occi.validation import check_invocation, check_update
from simyard_sites.kubernetes.resource import Resource

SCALE = "http://simyard.dev/occi/platform/action#scale"
START_WORKERS = "http://cloud4e/beam/action#start_workers"


async def update(bench: Bench, path: str, *, replace: bool = False, mixins: tuple[str, ...] = (), **given: Any) -> Any:
    entity = bench.entity(path)
    checked = check_update(Draft("", mixins, given), entity, bench.objects.model(), replace)
    return await bench.objects.update(ADA, entity, checked, replace=replace)


async def act(bench: Bench, action: str, *paths: str, waits: bool = False, **given: Any) -> Any:
    entities = [bench.entity(path) for path in paths]
    found, attributes = check_invocation(
        Draft(action=action, attributes=given), action.rpartition("#")[2], entities, bench.objects.model()
    )
    return await bench.objects.act(ADA, entities, found, attributes, wait=waits)


async def turns() -> None:
    """Let others go as far as they get without anything from outside."""
    for _ in range(20):
        await asyncio.sleep(0)


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


async def test_an_application_is_described_by_its_vendor() -> None:
    bench = Bench().fill()
    with pytest.raises(OcciError) as refused:
        await update(bench, "/application/uid-beam", **{"occi.app.name": "Mine"})
    assert refused.value.status == 403
    with pytest.raises(OcciError) as refused:
        await bench.objects.delete(ADA, [bench.entity("/application/uid-beam")])
    assert refused.value.status == 403


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
    assert bench.objects.entity("/compute/uid-pool-1") is None


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
    await bench.objects.delete(ADA, list(bench.objects.entities(bench.objects.paths("/compute/"))))
    assert spec(bench, names.WORKER_POOLS, "pool")["replicas"] == 0
    assert [call for call in bench.kube.calls if call[1] == "workerpools"] == [("patch", "workerpools", "pool")]
    assert not bench.stored(names.WORKERS)
    assert bench.objects.paths("/compute/") == ()


async def test_deleting_everything_leaves_what_is_the_vendor_s() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker("pool-0", pool="pool"), worker("alone"))
    await bench.objects.delete(ADA, list(bench.objects.entities(bench.objects.paths("/"))))
    assert bench.objects.paths("/") == ("/application/uid-beam",)
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
    assert bench.objects.entity(shown.path) is None
    await bench.objects.delete(ADA, [shown])


# Actions


@pytest.mark.parametrize(
    ("term", "machine", "power_state"),
    [("stop", "Running", "Stopped"), ("suspend", "Running", "Suspended"), ("start", "Stopped", "Running")],
)
async def test_power_actions_say_what_the_machine_should_do(term: str, machine: str, power_state: str) -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker(machine=machine, ready=machine == "Running"))
    await act(bench, COMPUTE_ACTION_SCHEME + term, "/compute/uid-w")
    assert spec(bench, names.WORKERS, "w")["powerState"] == power_state


async def test_each_restart_asks_for_one_more() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    for count in (1, 2):
        await act(bench, f"{COMPUTE_ACTION_SCHEME}restart", "/compute/uid-w")
        assert spec(bench, names.WORKERS, "w")["restarts"] == count


async def test_two_who_restart_at_the_same_moment_restart_once() -> None:
    bench, other = Bench().fill(), Bench().fill()
    other.kube.objects = bench.kube.objects
    raw = worker(restarts=3)
    bench.put(names.WORKERS, raw)
    other.put(names.WORKERS, raw)
    await asyncio.gather(*(act(one, f"{COMPUTE_ACTION_SCHEME}restart", "/compute/uid-w") for one in (bench, other)))
    assert spec(bench, names.WORKERS, "w")["restarts"] == 4


async def test_who_waits_for_a_stop_hears_of_it_when_the_machine_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    waiting = asyncio.create_task(act(bench, f"{COMPUTE_ACTION_SCHEME}stop", "/compute/uid-w", waits=True))
    await turns()
    assert spec(bench, names.WORKERS, "w")["powerState"] == "Stopped"
    assert not waiting.done()
    bench.put(names.WORKERS, worker(machine="Stopped", ready=False, reason="Stopped"))
    assert await waiting is None
    monkeypatch.setattr(actions, "WAIT_SECONDS", 0.01)
    with pytest.raises(OcciError, match="not done after") as late:
        await act(bench, f"{COMPUTE_ACTION_SCHEME}start", "/compute/uid-w", waits=True)
    assert late.value.status == 504


async def test_start_workers_makes_a_pool_scales_it_up_and_never_down() -> None:
    bench = Bench().fill()
    bench.forget(names.WORKER_POOLS, "pool")
    for count, replicas in ((4, 4), (2, 4), (9, 9), (9, 9)):
        await act(bench, START_WORKERS, "/application/uid-beam", n=count)
        assert spec(bench, names.WORKER_POOLS, "beam") == {"serviceRef": {"name": "beam"}, "replicas": replicas}


async def test_start_workers_uses_the_only_pool_and_resumes_it() -> None:
    bench = Bench().fill()
    bench.put(names.WORKER_POOLS, pool(suspend=True))
    await act(bench, START_WORKERS, "/application/uid-beam", n=3)
    assert (
        spec(bench, names.WORKER_POOLS, "pool")["replicas"],
        spec(bench, names.WORKER_POOLS, "pool")["suspend"],
    ) == (
        3,
        False,
    )
    bench.put(names.WORKER_POOLS, pool("second"))
    with pytest.raises(OcciError, match="2 components") as refused:
        await act(bench, START_WORKERS, "/application/uid-beam", n=3)
    assert refused.value.status == 409
    bench.put(names.WORKER_POOLS, pool("beam"))
    await act(bench, START_WORKERS, "/application/uid-beam", n=6)
    assert spec(bench, names.WORKER_POOLS, "beam")["replicas"] == 6


async def test_start_workers_waits_for_the_end_of_a_pool_that_is_deleted() -> None:
    bench = Bench().fill()
    bench.forget(names.WORKER_POOLS, "pool")
    ending = pool("beam", replicas=2)
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:01Z"
    bench.put(names.WORKER_POOLS, ending)
    with pytest.raises(OcciError, match="is being deleted: try again") as refused:
        await act(bench, START_WORKERS, "/application/uid-beam", n=4)
    assert refused.value.status == 409
    assert spec(bench, names.WORKER_POOLS, "beam")["replicas"] == 2


async def test_a_pool_of_another_service_is_left_alone() -> None:
    bench = Bench().fill(services=iter([service(), service("plate")]))
    bench.forget(names.WORKER_POOLS, "pool")
    bench.kube.put(names.WORKER_POOLS, pool("beam", service="plate"))
    with pytest.raises(OcciError) as refused:
        await act(bench, START_WORKERS, "/application/uid-beam", n=1)
    assert refused.value.status == 409


@pytest.mark.parametrize("by_query", [True, False])
async def test_who_waits_for_workers_hears_when_all_are_ready(by_query: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench().fill()
    given = {} if by_query else {"wait": True}
    waiting = asyncio.create_task(act(bench, SCALE, "/component/uid-pool", waits=by_query, replicas=2, **given))
    await turns()
    assert spec(bench, names.WORKER_POOLS, "pool")["replicas"] == 2

    def observed(generation: int, ready: int) -> None:
        raw = bench.kube.touch(names.WORKER_POOLS, "pool")
        raw["status"] = {"observedGeneration": generation, "readyReplicas": ready}
        bench.put(names.WORKER_POOLS, raw)

    for generation, ready in ((1, 2), (2, 1)):
        observed(generation, ready)
        await turns()
        assert not waiting.done()
    observed(2, 2)
    assert await waiting is None
    monkeypatch.setattr(scaling, "WAIT_SECONDS", 0.01)
    with pytest.raises(OcciError, match="2 of 5 workers are ready") as late:
        await act(bench, SCALE, "/component/uid-pool", waits=True, replicas=5)
    assert late.value.status == 504


async def test_stopping_an_application_suspends_all_its_pools_and_starting_it_resumes_them() -> None:
    bench = Bench().fill()
    bench.put(names.WORKER_POOLS, pool("second"))
    await act(bench, f"{APPLICATION_ACTION_SCHEME}stop", "/application/uid-beam")
    assert all(raw["spec"]["suspend"] for raw in bench.stored(names.WORKER_POOLS).values())
    await act(bench, f"{COMPONENT_ACTION_SCHEME}start", "/component/uid-second")
    assert spec(bench, names.WORKER_POOLS, "second")["suspend"] is False
    await act(bench, f"{APPLICATION_ACTION_SCHEME}start", "/application/uid-beam")
    assert not any(raw["spec"]["suspend"] for raw in bench.stored(names.WORKER_POOLS).values())


async def test_an_action_on_a_collection_is_done_on_every_member_and_the_failure_of_one_is_told() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker("a"), worker("b"), worker("c"))
    paths = [f"/compute/uid-{name}" for name in "abc"]
    del bench.kube.objects["workers", "b"]
    with pytest.raises(OcciError) as failed:
        await act(bench, f"{COMPUTE_ACTION_SCHEME}stop", *paths)
    assert failed.value.status == 404
    assert {spec(bench, names.WORKERS, name)["powerState"] for name in "ac"} == {"Stopped"}


async def test_an_async_action_is_recorded_once_for_one_request() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    shown = bench.entity("/compute/uid-w")
    action = bench.objects.model().action("http://cloud4e/beam/action#sweep")
    assert action is not None
    results = [await bench.objects.act(ADA, [shown], action, {}, wait=False, key="message") for _ in range(2)]
    [recorded] = bench.stored(names.SERVICE_ACTIONS).values()
    assert results == [{"org.simyard.serviceaction": recorded["metadata"]["name"]}] * 2
    assert recorded["metadata"]["annotations"][names.ANNOTATION_REQUESTED_BY] == "ada"


async def test_a_sync_action_without_a_broker_is_503() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    with pytest.raises(Exception, match="broker") as failed:
        await act(bench, "http://cloud4e/beam/action#solve", "/compute/uid-w", load=1)
    assert getattr(failed.value, "code", 0) == 503


async def test_refreshing_without_a_broker_keeps_what_is_known() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, *(worker(f"w{n}", values={"length": n}) for n in range(50)))
    shown = list(bench.objects.entities(bench.objects.paths("/compute/")))
    await bench.objects.refresh(shown, 0.05)
    assert list(bench.objects.entities(bench.objects.paths("/compute/"))) == shown


# Rights


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
    for path in bench.objects.paths("/compute/"):
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
