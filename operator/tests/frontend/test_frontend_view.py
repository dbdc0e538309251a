# SPDX-License-Identifier: Apache-2.0
"""Objects as entities: their content, their order, and the moments at which they count as changed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from frontend_objects import Bench, condition, metadata, pool, service, worker
from hypothesis import given
from hypothesis import strategies as st

from simyard.api import names
from simyard.api.base import Json, Metadata
from simyard.frontend.entities.catalogue import make_terms
from simyard.frontend.entities.listing import Listings, make_entry
from simyard.guest.values import ClaimedAttributes
from simyard.occi.model import Link, Resource
from simyard.occi.standard import AMQPLINK, COMPUTE, COMPUTE_ACTION_SCHEME
from simyard_adapter.declarations import Interface

INTERFACE = "http://simyard.dev/occi/service/beam#interface"
OS_TPL = "http://simyard.dev/occi/os_tpl#beam"
SOLVE = "http://cloud4e/beam/action#solve"


def compute(bench: Bench, path: str) -> Resource:
    found = bench.entity(path)
    assert isinstance(found, Resource)
    return found


def test_a_worker_is_a_compute_with_its_service_s_values_and_actions_and_an_amqplink() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker("pool-0", pool="pool", values={"length": 12.5, "state": "idle", "undeclared": 1}))
    shown = compute(bench, "/compute/uid-pool-0")
    assert shown.mixins[:3] == (OS_TPL, "http://simyard.dev/occi/resource_tpl#default", INTERFACE)
    assert shown.attributes["occi.compute.state"] == "active"
    assert (shown.attributes["occi.compute.cores"], shown.attributes["occi.compute.memory"]) == (1, 0.5)
    assert shown.attributes["cloud4e.length"] == 12.5
    assert shown.attributes["org.simyard.observed"] == "2026-01-01T00:00:00.000Z"
    assert "cloud4e.undeclared" not in shown.attributes
    assert SOLVE in shown.actions
    assert bench.objects.measure_age_seconds(shown.path) == 10.0
    [inline] = shown.links
    link = bench.entity("/amqplink/uid-pool-0")
    assert isinstance(link, Link)
    assert (link.kind, link.source, link.path) == (AMQPLINK, shown.path, inline.path)
    assert link.mixins == (INTERFACE,)
    assert SOLVE in link.actions
    assert link.attributes["occi.amqplink.queue"] == inline.attributes["occi.amqplink.queue"]
    assert link.attributes["cloud4e.length"] == 12.5


@pytest.mark.parametrize(
    ("given", "state", "terms"),
    [
        (worker(), "active", {"stop", "restart", "suspend"}),
        (worker(powerState="Stopped"), "active", {"start", "stop", "suspend"}),
        (worker(powerState="Suspended"), "active", {"start", "stop", "suspend"}),
        (worker(ready=False, reason="Starting"), "inactive", {"start", "stop"}),
        (worker(ready=False, reason="Starting", machine="Boot"), "inactive", {"start", "stop"}),
        (worker(ready=False, reason="Draining"), "active", {"stop", "restart", "suspend"}),
        (worker(ready=False, reason="AdapterDisconnected"), "active", {"stop", "restart", "suspend"}),
        (worker(ready=False, reason="AdapterDisconnected", machine="Boot"), "inactive", {"start", "stop"}),
        (worker(ready=False, reason="Stopped", machine="Stopped", powerState="Stopped"), "inactive", {"start"}),
        (worker(ready=False, reason="Stopped", machine="Stopped"), "inactive", {"start", "stop"}),
        (worker(ready=False, reason="Stopped", machine="Suspended", powerState="Suspended"), "suspended", {"start"}),
        (worker(ready=False, reason="Stopped", machine="Suspended"), "suspended", {"start", "stop"}),
        (worker(ready=False, reason="MachineFailed", machine="Failed"), "error", set()),
        (worker(ready=False, reason="MachineLost", machine=""), "error", set()),
    ],
)
def test_the_state_says_what_can_be_done(given: Json, state: str, terms: set[str]) -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, given)
    shown = compute(bench, "/compute/uid-w")
    assert shown.attributes["occi.compute.state"] == state
    assert {name.removeprefix(COMPUTE_ACTION_SCHEME) for name in shown.actions} - {
        "http://cloud4e/beam/action#solve",
        "http://cloud4e/beam/action#sweep",
    } == terms
    takes_actions = given["status"]["conditions"][0]["status"] == "True" and "powerState" not in given["spec"]
    assert (SOLVE in shown.actions) == takes_actions


def test_a_service_is_an_application_with_a_component_for_each_pool() -> None:
    bench = Bench().fill()
    bench.put(names.WORKER_POOLS, pool("second", replicas=4, suspend=True), pool("other", service="none"))
    shown = compute(bench, "/application/uid-beam")
    assert [link.target for link in shown.links] == ["/component/uid-pool", "/component/uid-second"]
    assert shown.attributes["org.simyard.replicas"] == 5
    assert shown.attributes["occi.app.state"] == "active"
    assert {name.rpartition("#")[2] for name in shown.actions} == {"start", "stop", "scale", "start_workers"}
    assert bench.objects.list_paths("/component/") == (
        "/component/uid-other",
        "/component/uid-pool",
        "/component/uid-second",
    )
    assert bench.entity("/componentlink/uid-second").path in bench.objects.list_paths("/componentlink/")


def test_a_pool_that_is_deleted_is_no_component_while_its_workers_end() -> None:
    bench = Bench().fill()
    key = bench.objects.make_part_key("/application/uid-beam")
    ending = pool()
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:01Z"
    bench.put(names.WORKER_POOLS, ending)
    for path in ("/component/uid-pool", "/componentlink/uid-pool"):
        assert bench.objects.get_entity(path) is None
        assert path not in bench.objects.list_paths("/")
    assert compute(bench, "/application/uid-beam").links == ()
    assert bench.objects.make_part_key("/application/uid-beam") != key
    bench.forget(names.WORKER_POOLS, "pool")
    assert bench.objects.list_paths("/component/") == ()


def test_listings_of_kinds_and_mixins_are_by_creation_and_the_same_until_a_member_comes_or_goes() -> None:
    bench = Bench().fill()
    bench.put(
        names.WORKERS,
        worker("b", created="2026-01-01T00:00:02Z"),
        worker("a", created="2026-01-01T00:00:03Z", resources={"cpu": 1, "memory": "1024Mi"}),
        worker("c", created="2026-01-01T00:00:01Z", sshPublicKeys=["ssh-rsa A"]),
    )
    everyone = ("/compute/uid-c", "/compute/uid-b", "/compute/uid-a")
    for location in ("/compute/", "/os_tpl/", "/os_tpl/beam/", "/worker/"):
        assert bench.objects.list_paths(location) == everyone
    assert bench.objects.list_paths("/resource_tpl/small/") == ("/compute/uid-a",)
    assert bench.objects.list_paths("/resource_tpl/default/") == ("/compute/uid-c", "/compute/uid-b")
    assert bench.objects.list_paths("/ssh_key/") == ("/compute/uid-c",)
    assert set(bench.objects.list_paths("/service/beam/")) == {
        *everyone,
        *(p.replace("compute", "amqplink") for p in everyone),
    }
    assert bench.objects.list_paths("/master/beam/") == ("/application/uid-beam",)
    assert bench.objects.list_paths("/scalable/") == ("/application/uid-beam", "/component/uid-pool")
    assert bench.objects.list_paths("/networkinterface/") == bench.objects.list_paths("/nowhere/") == ()
    assert len(bench.objects.list_paths("/")) == 10
    before = bench.objects.list_paths("/compute/")
    bench.put(names.WORKERS, worker("b", created="2026-01-01T00:00:02Z", ready=False))
    assert bench.objects.list_paths("/compute/") is before
    bench.forget(names.WORKERS, "b")
    assert bench.objects.list_paths("/compute/") == ("/compute/uid-c", "/compute/uid-a")
    assert bench.objects.get_entity("/compute/uid-b") is None
    assert bench.objects.make_part_key("/compute/uid-b") is None


def test_only_what_changes_gets_another_key_and_everything_another_version() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker("a"), worker("b"))
    objects = bench.objects
    keys = {path: objects.make_part_key(path) for path in ("/compute/uid-a", "/compute/uid-b", "/amqplink/uid-a")}
    version = objects.version
    interface = Interface.from_json({"attributes": [{"name": "length", "type": "number"}]})
    subject = objects.view.directory.find_worker_by_uid("uid-a")
    assert subject is not None
    objects.view.values.record(subject, ClaimedAttributes({"length": 3}), interface, 5.0)
    assert objects.version > version
    assert [path for path, key in keys.items() if objects.make_part_key(path) != key] == [
        "/compute/uid-a",
        "/amqplink/uid-a",
    ]
    version = objects.version
    bench.put(names.WORKERS, worker("b", ready=False))
    assert objects.version > version
    assert objects.make_part_key("/compute/uid-b") != keys["/compute/uid-b"]


def test_an_answer_of_an_adapter_is_a_visible_change_because_it_renews_the_age_of_values() -> None:
    view = Bench().fill().objects.view
    version = view.version
    view.polls.note_answer("uid-link", 1767225610.0)
    assert view.version > version


def test_the_templates_of_sizes_bring_their_sizes() -> None:
    model = Bench().fill().objects.get_model()
    for term, cores, memory in (("small", 1, 1), ("huge", 8, 16)):
        mixin = model.find_mixin(f"http://simyard.dev/occi/resource_tpl#{term}")
        assert mixin is not None
        assert {spec.name: spec.default for spec in mixin.attributes} == {
            "occi.compute.cores": cores,
            "occi.compute.memory": memory,
        }
        for spec in mixin.attributes:
            assert replace(spec, default=None) == model.collect_specs((COMPUTE,))[spec.name]
        assert mixin.title == f"{cores} core{'s' * (cores > 1)} and {memory} GiB"


def test_the_model_is_the_same_until_a_service_s_spec_changes() -> None:
    bench = Bench().fill()
    model = bench.objects.get_model()
    counted = service()
    counted["status"]["conditions"] = [condition("Available", False)]
    bench.put(names.SIMULATION_SERVICES, counted)
    assert bench.objects.get_model() is model
    changed = service(interface={"actions": [{"name": "other"}]})
    changed["metadata"]["generation"] = 2
    bench.put(names.SIMULATION_SERVICES, changed)
    assert bench.objects.get_model().version > model.version
    assert bench.objects.get_model().find_action("http://cloud4e/beam/action#other") is not None
    assert bench.objects.get_model().find_action(SOLVE) is None


def test_nobody_takes_the_id_of_another_worker() -> None:
    bench = Bench().fill()
    claim = {names.ANNOTATION_OCCI_ID: "uid-victim"}
    bench.put(names.WORKERS, worker("thief", annotations=claim))
    assert bench.entity("/compute/uid-victim").attributes["org.simyard.worker"] == "thief"
    bench.put(names.WORKERS, worker("victim"))
    assert bench.entity("/compute/uid-victim").attributes["org.simyard.worker"] == "victim"
    assert bench.entity("/compute/uid-thief").attributes["org.simyard.worker"] == "thief"
    bench.put(
        names.WORKERS,
        worker("late", annotations=claim),
        worker("unsafe", annotations={**claim, names.ANNOTATION_OCCI_ID: "a/b"}),
    )
    assert bench.entity("/compute/uid-late").attributes["org.simyard.worker"] == "late"
    assert bench.entity("/compute/uid-unsafe").attributes["org.simyard.worker"] == "unsafe"
    for name in ("victim", "thief", "late", "unsafe"):
        bench.forget(names.WORKERS, name)
    assert bench.objects.list_paths("/compute/") == bench.objects.list_paths("/amqplink/") == ()


def test_a_worker_whose_service_is_gone_is_shown_without_it() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker(service="gone"))
    shown = compute(bench, "/compute/uid-w")
    assert INTERFACE not in shown.mixins
    assert "occi.compute.cores" not in shown.attributes


async def test_a_frontend_of_one_service_shows_no_other() -> None:
    bench = Bench("beam").fill()
    bench.put(names.WORKER_POOLS, pool("other", service="plate"))
    bench.put(names.WORKERS, worker("mine"), worker("other", service="plate"))
    assert bench.objects.list_paths("/compute/") == ("/compute/uid-mine",)
    assert bench.objects.list_paths("/component/") == ("/component/uid-pool",)
    assert bench.objects.get_entity("/component/uid-other") is None
    bench.forget(names.WORKERS, "other")
    assert await bench.objects.find("/compute/uid-other") is None


async def test_unknown_components_and_applications_cost_one_list_in_a_second() -> None:
    bench = Bench().fill()
    clock = [0.0]
    bench.objects._relisting._clock = lambda: clock[0]
    for _ in range(3):
        found = await asyncio.gather(*(bench.objects.find(f"/component/{n}") for n in range(20)))
        assert set(found) == {None}
    assert await bench.objects.find("/application/none") is None
    assert bench.kube.calls == [("list", "workerpools", ""), ("list", "simulationservices", "")]
    bench.kube.put(names.WORKER_POOLS, pool("new"))
    clock[0] += 1.5
    assert await bench.objects.find("/component/uid-new") is not None


def entries() -> st.SearchStrategy[list[tuple[bool, int, int]]]:
    return st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 3)), max_size=40)


@given(entries())
def test_a_listing_is_sorted_whatever_comes_and_goes(steps: list[tuple[bool, int, int]]) -> None:
    listings, there = Listings(), {}
    for is_added, name, second in steps:
        stamp = f"2026-01-01T00:00:0{second}Z"
        if is_added and name not in there:
            there[name] = make_entry(Metadata.model_validate(metadata(str(name), creationTimestamp=stamp)), f"/{name}")
            listings.add(there[name], ["all"])
        elif not is_added and name in there:
            listings.remove(there.pop(name), ["all"])
        assert listings.list_paths("all") == tuple(entry.path for entry in sorted(there.values()))
        assert listings.count("all") == len(there)


@given(st.sets(st.text(max_size=6) | st.sampled_from(["beam", "Beam", "be.am", "be-am", "beam-9d1b7bd5"]), max_size=12))
def test_terms_of_services_can_be_written_and_never_collide(known: set[str]) -> None:
    terms = make_terms(known)
    assert terms.keys() == known
    assert len(set(terms.values())) == len(known)
    for name, term in terms.items():
        assert term and set(term) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-")
        if name and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-"):
            assert term == name
