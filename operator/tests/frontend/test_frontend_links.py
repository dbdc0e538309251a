# SPDX-License-Identifier: Apache-2.0
"""Links in listings and renderings while the entities at their ends come and go."""

from __future__ import annotations

from typing import Any

from frontend_objects import ADA, Bench, metadata, pool, service, worker
from hypothesis import given
from hypothesis import strategies as st

from simyard.api import names
from simyard.api.base import Json
from simyard.frontend.entities.links import Pulled
from simyard.frontend.exchange import OcciRequest
from simyard.frontend.handlers import Handlers
from simyard.frontend.objects import ForeignAdapters
from simyard.occi.model import LINK, Draft, Model, Resource
from simyard.occi.standard import AMQPLINK, COMPUTE, NETWORKINTERFACE

MINE = "http://example.com/mine#"
QUEUE = "occi.amqplink.queue"
TEMPERATURE = "com.example.temperature"


def link(
    name: str, source: str, queue: str = "occi.amqp.service.1", *, kind: str = AMQPLINK, **attributes: Any
) -> Json:
    spec = {
        "kind": kind,
        "source": source,
        "target": "amqp:///q",
        "attributes": {QUEUE: queue, **attributes},
    }
    return {"metadata": metadata(name, annotations={names.ANNOTATION_OCCI_ID: f"uid-{name}"}), "spec": spec}


def mixin(name: str, *members: str) -> Json:
    spec = {
        "scheme": MINE,
        "term": name,
        "location": f"/{name}/",
        "attributes": [{"name": TEMPERATURE, "type": "number"}],
        "members": list(members),
    }
    return {"metadata": metadata(name), "spec": spec}


class Foreign:
    """Service adapters that report the same values for every link, or are silent; ``asked`` counts questions."""

    def __init__(self, **told: Any) -> None:
        self.told = {name.replace("__", "."): value for name, value in told.items()}
        self.silent = False
        self.asked = 0

    async def pull(self, queue: str, model: Model, *, timeout_seconds: float) -> Draft | None:
        self.asked += 1
        return None if self.silent else Draft(AMQPLINK, attributes=self.told)

    async def invoke(self, *_: object, **__: object) -> None:
        raise AssertionError("no actions here")


def bench_with(foreign: ForeignAdapters | None = None) -> Bench:
    bench = Bench().fill()
    bench.objects._foreign = foreign
    bench.put(names.WORKERS, worker("w"))
    bench.put(names.OCCI_LINKS, link("l", "/compute/uid-w"))
    bench.put(names.OCCI_MIXINS, mixin("mine", "/amqplink/uid-l"))
    return bench


def test_a_link_is_listed_while_what_it_starts_at_is_shown() -> None:
    bench = bench_with()
    listed = ("/amqplink/uid-l", "/amqplink/uid-w")
    assert sorted(bench.objects.list_paths("/amqplink/")) == list(listed)
    assert bench.objects.list_paths("/mine/") == ("/amqplink/uid-l",)
    bench.forget(names.WORKERS, "w")
    assert bench.objects.list_paths("/amqplink/") == bench.objects.list_paths("/mine/") == ()
    bench.put(names.WORKERS, worker("w", uid="another", annotations={names.ANNOTATION_OCCI_ID: "uid-w"}))
    assert sorted(bench.objects.list_paths("/amqplink/")) == list(listed)
    bench.put(names.OCCI_LINKS, link("elsewhere", "/compute/of-another-service"))
    assert "/amqplink/uid-elsewhere" not in bench.objects.list_paths("/")


async def test_links_are_found_by_their_kind_wherever_they_are_shown() -> None:
    bench = bench_with()
    bench.put(names.OCCI_LINKS, link("n", "/compute/uid-w", kind=NETWORKINTERFACE))
    handlers = Handlers(bench.objects)

    async def listed(target: str, kind: str) -> set[str]:
        scheme, _, term = kind.rpartition("#")
        headers = [("category", f'{term}; scheme="{scheme}#"; class="kind"')] if kind else []
        response = await handlers.handle(OcciRequest("GET", target, {}, headers, b"", ADA, ""))
        return {line.rpartition(": ")[2] for line in response.body.decode().splitlines()}

    links = {"/amqplink/uid-w", "/amqplink/uid-l", "/componentlink/uid-pool", "/link/uid-n"}
    assert await listed("/link/", "") == await listed("/", LINK) == links
    assert await listed("/", NETWORKINTERFACE) == {"/link/uid-n"}
    assert await listed("/", AMQPLINK) == {"/amqplink/uid-w", "/amqplink/uid-l"}
    everything = {"/compute/uid-w", "/application/uid-beam", "/component/uid-pool", "/network/site"}
    assert await listed("/resource/", "") == everything
    assert await listed("/link/", COMPUTE) == set()


def test_a_component_is_linked_to_its_application_while_there_is_one() -> None:
    bench = Bench().fill()
    assert bench.objects.list_paths("/componentlink/") == ("/componentlink/uid-pool",)
    bench.forget(names.SIMULATION_SERVICES, "beam")
    assert bench.objects.list_paths("/componentlink/") == ()
    assert bench.objects.list_paths("/component/") == ("/component/uid-pool",)
    again = service()
    again["metadata"]["uid"] = "another"
    bench.put(names.SIMULATION_SERVICES, again)
    assert bench.objects.list_paths("/componentlink/") == ("/componentlink/uid-pool",)


def test_the_numbers_of_an_application_are_those_of_its_components() -> None:
    bench = Bench().fill()
    counted = pool(replicas=3)
    counted["status"]["readyReplicas"] = 2
    bench.put(names.WORKER_POOLS, counted)
    bench.put(names.WORKERS, worker("alone"))
    attributes = bench.entity("/application/uid-beam").attributes
    assert (attributes["org.simyard.replicas"], attributes["org.simyard.ready"]) == (3, 2)


SOURCES = ("/compute/uid-a", "/compute/uid-b", "/application/uid-1", "/component/uid-2")
PATHS = (*SOURCES, "/amqplink/uid-a", "/amqplink/uid-1", "/amqplink/uid-2", "/componentlink/uid-2")


@given(st.lists(st.tuples(st.sampled_from("wwspllmm"), st.integers(0, 3), st.integers(0, 7)), max_size=25))
def test_what_is_listed_is_there_and_what_is_another_has_another_key(steps: list[tuple[str, int, int]]) -> None:
    bench = Bench()
    objects = bench.objects
    seen: dict[tuple[str, object, int], object] = {}
    made = 0
    for what, which, other in steps:
        resource, raw = {
            "w": (names.WORKERS, worker(a := "ab"[which % 2], annotations={names.ANNOTATION_OCCI_ID: f"uid-{a}"})),
            "s": (names.SIMULATION_SERVICES, service()),
            "p": (names.WORKER_POOLS, pool()),
            "l": (names.OCCI_LINKS, link("12"[which % 2], SOURCES[other % 4])),
            "m": (names.OCCI_MIXINS, mixin("xy"[which % 2], PATHS[other], PATHS[(other * 3 + which) % 8])),
        }[what]
        before = bench.stored(resource).get(raw["metadata"]["name"])
        if before is not None and (which > 1 or what == "s"):
            bench.forget(resource, raw["metadata"]["name"])
        else:
            made += before is None
            raw["metadata"]["uid"] = before["metadata"]["uid"] if before is not None else f"uid-{made}"
            bench.put(resource, raw)
        listed = objects.list_paths("/")
        assert len(set(listed)) == len(listed)
        assert [path for path in listed if objects.get_entity(path) is None] == []
        for location in ("/compute/", "/amqplink/", "/application/", "/component/", "/componentlink/"):
            assert {path for path in listed if path.startswith(location)} == set(objects.list_paths(location))
        for path in PATHS:
            entity = objects.get_entity(path)
            assert (entity is not None) == (path in listed)
            if entity is not None:
                key = path, objects.make_part_key(path), objects.get_model().version
                assert seen.setdefault(key, entity) == entity


def test_mixins_of_links_that_belong_to_others_are_shown() -> None:
    bench = bench_with()
    keys = {path: bench.objects.make_part_key(path) for path in ("/compute/uid-w", "/application/uid-beam")}
    members = ("/componentlink/uid-pool", "/amqplink/uid-w", "/amqplink/uid-l")
    bench.put(names.OCCI_MIXINS, mixin("more", *members))
    for path in members:
        assert MINE + "more" in bench.entity(path).mixins
    for path, key in keys.items():
        entity = bench.entity(path)
        assert isinstance(entity, Resource)
        assert [MINE + "more" in item.mixins for item in entity.links] == [True] * len(entity.links)
        assert bench.objects.make_part_key(path) != key


def test_a_mixin_of_one_link_alone_changes_what_its_resource_shows() -> None:
    owners = {
        "/amqplink/uid-l": "/compute/uid-w",
        "/amqplink/uid-w": "/compute/uid-w",
        "/componentlink/uid-pool": "/application/uid-beam",
    }
    for link_path, owner in owners.items():
        bench = bench_with()
        bench.put(names.OCCI_MIXINS, mixin("more"))
        key = bench.objects.make_part_key(owner)
        bench.put(names.OCCI_MIXINS, mixin("more", link_path))
        assert bench.objects.make_part_key(owner) != key, link_path


async def test_an_adapter_tells_what_the_link_s_mixins_declare_and_nothing_else() -> None:
    told = {QUEUE.replace(".", "__"): "occi.amqp.service.evil", "com__example__temperature": 20, "other": 1}
    bench = bench_with(Foreign(**told))
    path = "/amqplink/uid-l"
    await bench.objects.refresh([bench.entity(path)])
    assert bench.entity(path).attributes == {QUEUE: "occi.amqp.service.1", TEMPERATURE: 20}


async def test_what_an_adapter_tells_is_asked_for_by_get_and_stays_until_it_is_another_adapter() -> None:
    foreign = Foreign(com__example__temperature=20)
    bench = bench_with(foreign)
    objects, path, now = bench.objects, "/amqplink/uid-l", [1000.0]
    objects._clock = lambda: now[0]
    handlers = Handlers(objects)

    async def get(path: str) -> tuple[float, bytes]:
        request = OcciRequest("GET", path, {}, (), b"", ADA, "https://h")
        response = await handlers.handle(request)
        assert response.status == 200
        values = [line for line in response.body.splitlines() if TEMPERATURE.encode() in line]
        return objects.measure_age_seconds(path) or 0.0, values[0].rpartition(b"=")[2] if values else b""

    assert await get(path) == (0, b"20")
    foreign.told[TEMPERATURE] = 21
    assert (await get(path), foreign.asked) == ((0, b"20"), 1)  # not twice in a second
    now[0] += 1
    assert await get(path) == (0, b"21")
    writes = [call for call in bench.kube.calls if call[0] == "patch"]
    now[0] += 1
    assert await get(path) == (0, b"21")
    assert [call for call in bench.kube.calls if call[0] == "patch"] == writes  # unchanged values are not written
    foreign.silent = True
    now[0] += 7
    asked = foreign.asked
    assert (await get(path), await get(path), foreign.asked) == ((7, b"21"), (7, b"21"), asked + 1)
    now[0] += 3
    assert (await get(path), foreign.asked) == ((10, b"21"), asked + 1)  # a silent adapter is asked less often
    assert objects.measure_age_seconds("/compute/uid-w") == 10.0
    stored = bench.stored(names.OCCI_LINKS)["l"]
    moved = link("l", "/compute/uid-w", queue="occi.amqp.service.2")
    moved["metadata"]["annotations"] |= stored["metadata"]["annotations"]
    bench.put(names.OCCI_LINKS, moved)
    assert await get(path) == (0, b"")


async def test_what_one_frontend_has_pulled_every_other_shows() -> None:
    here, silent = bench_with(Foreign(com__example__temperature=20)), Foreign()
    silent.silent = True
    there, path = bench_with(silent), "/amqplink/uid-l"
    await here.objects.pull("/compute/uid-w")
    there.hear(names.OCCI_LINKS, *here.stored(names.OCCI_LINKS).values())
    assert here.entity(path).attributes == there.entity(path).attributes
    assert there.entity(path).attributes[TEMPERATURE] == 20


async def test_an_answer_that_is_older_than_another_frontend_s_is_not_kept() -> None:
    bench, path = bench_with(Foreign(com__example__temperature=20)), "/amqplink/uid-l"

    def another(verb: str, plural: str, name: str) -> None:
        bench.kube.before = lambda *_: None
        newer = Pulled("occi.amqp.service.1", 1.0, {TEMPERATURE: 30}).build_annotation()
        bench.kube.touch(names.OCCI_LINKS, "l")["metadata"]["annotations"][names.ANNOTATION_OCCI_PULLED] = newer

    bench.kube.before = another
    await bench.objects.pull(path)
    assert bench.entity(path).attributes[TEMPERATURE] == 30
