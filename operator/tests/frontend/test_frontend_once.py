# SPDX-License-Identifier: Apache-2.0
"""Requests that arrive at two frontends, or at one before and after it was killed, are carried out once."""

from __future__ import annotations

import asyncio
import copy

import pytest
from frontend_objects import Bench, link, pool, service, worker

from simyard.api import names
from simyard.api.base import Json, Metadata
from simyard.frontend.changes.noted_requests import MAX_ENTRIES, add_notes, find_unnoted_keys
from simyard.occi.standard import COMPONENT_ACTION_SCHEME, COMPUTE, COMPUTE_ACTION_SCHEME
from simyard_sites.kubernetes.resource import Resource

KEY = "k" * 32
KIND = f'Category: compute; scheme="{COMPUTE.removesuffix("compute")}"; class="kind"\n'
START_WORKERS = "/application/uid-beam?action=start_workers&n={}"


class Killed(BaseException):
    """The exception at the side effect where a frontend is killed."""


def action(term: str, scheme: str = COMPUTE_ACTION_SCHEME) -> str:
    return f'Category: {term}; scheme="{scheme}"; class="action"\n'


def stored(bench: Bench, resource: Resource, name: str) -> Json:
    return dict(bench.stored(resource)[name])


def replicas(bench: Bench) -> int:
    return int(stored(bench, names.WORKER_POOLS, "pool")["spec"]["replicas"])


@pytest.fixture
def bench() -> Bench:
    """Return a frontend with five workers of a pool of five."""
    bench = Bench().fill()
    bench.put(names.WORKER_POOLS, pool(replicas=5))
    bench.put(names.WORKERS, *(worker(f"w{n}", pool="pool") for n in range(5)))
    return bench


@pytest.fixture
def other(bench: Bench) -> Bench:
    """Return a second frontend that sees the state that the first one saw at the beginning."""
    other = bench.beside()
    other.hear(names.WORKERS, *bench.stored(names.WORKERS).values())
    return other


# Deletion


async def test_a_compute_that_is_deleted_twice_at_a_time_takes_one_place_along(bench: Bench) -> None:
    answers = await asyncio.gather(bench.ask("DELETE", "/compute/uid-w1"), bench.ask("DELETE", "/compute/uid-w1"))
    assert [answer.status for answer in answers] == [200, 200]
    assert (replicas(bench), len(bench.stored(names.WORKERS))) == (4, 4)


@pytest.mark.parametrize("verb", ["patch workers", "patch workerpools", "delete workers"])
async def test_a_deletion_goes_on_elsewhere_where_it_was_interrupted(bench: Bench, other: Bench, verb: str) -> None:
    def killed(*call: str) -> None:
        if " ".join(call[:2]) == verb:
            raise Killed

    bench.kube.before = killed
    with pytest.raises((Killed, BaseExceptionGroup)):
        await bench.ask("DELETE", "/compute/uid-w1", key=KEY)
    assert (await other.ask("DELETE", "/compute/uid-w1", key=KEY)).status == 200
    assert (replicas(bench), sorted(bench.stored(names.WORKERS))) == (4, ["w0", "w2", "w3", "w4"])


async def test_a_frontend_that_has_not_heard_of_a_deletion_does_not_scale_again(bench: Bench, other: Bench) -> None:
    for frontend in (bench, other):
        assert (await frontend.ask("DELETE", "/compute/uid-w1")).status == 200
    assert replicas(bench) == 4


async def test_deletions_of_different_computes_by_two_frontends_all_count(bench: Bench, other: Bench) -> None:
    await bench.ask("DELETE", "/compute/uid-w1")
    await other.ask("DELETE", "/compute/uid-w2")
    assert replicas(bench) == 3


async def test_the_last_of_a_pool_deleted_twice_does_not_take_two_places_along() -> None:
    """The pool has one worker, and three are yet to be created."""
    bench = Bench().fill()
    bench.put(names.WORKER_POOLS, pool(replicas=4))
    bench.put(names.WORKERS, worker("w0", pool="pool"))
    other = bench.beside()
    other.hear(names.WORKERS, *bench.stored(names.WORKERS).values())
    for frontend in (bench, other):
        assert (await frontend.ask("DELETE", "/compute/uid-w0")).status == 200
    assert replicas(bench) == 3


@pytest.mark.parametrize("path", ["/compute/uid-w1", "/compute/alone", "/component/uid-pool", "/amqplink/uid-l"])
async def test_a_deletion_under_one_key_is_answered_again_by_every_frontend(
    bench: Bench, other: Bench, path: str
) -> None:
    bench.put(names.WORKERS, worker("alone", annotations={names.ANNOTATION_OCCI_ID: "alone"}))
    bench.put(names.OCCI_LINKS, link("l", "/compute/uid-w0"))
    before = dict(bench.kube.objects)
    for (plural, _), raw in before.items():
        if plural in ("workers", "occilinks"):
            other.hear(names.WORKERS if plural == "workers" else names.OCCI_LINKS, raw)
    assert (await bench.ask("DELETE", path, key=KEY)).status == 200
    [gone] = before.keys() - bench.kube.objects.keys()
    noted = copy.deepcopy(before[gone])
    resource = {"workers": names.WORKERS, "workerpools": names.WORKER_POOLS, "occilinks": names.OCCI_LINKS}[gone[0]]
    notes = add_notes({}, metadata_of({}), [KEY])["metadata"]["annotations"]
    noted["metadata"] |= {"annotations": noted["metadata"].get("annotations", {}) | notes, "resourceVersion": "1000000"}
    other.put(resource, noted)  # the report of the watch, and then
    other.forget(resource, gone[1])
    for frontend in (bench, other):
        assert (await frontend.ask("DELETE", path, key=KEY)).status == 200
        assert (await frontend.ask("DELETE", path, key="another")).status == 404
        assert (await frontend.ask("DELETE", path)).status == 404


# Actions


async def test_a_restart_under_one_key_is_one_restart(bench: Bench, other: Bench) -> None:
    for frontend, key in ((bench, KEY), (other, KEY), (bench, "another"), (other, KEY), (bench, KEY)):
        answer = await frontend.ask("POST", "/compute/uid-w0?action=restart", action("restart"), key=key)
        assert answer.status == 200
    assert stored(bench, names.WORKERS, "w0")["spec"]["restarts"] == 2


async def test_a_frontend_that_has_not_heard_of_the_last_restart_asks_for_one_more(bench: Bench, other: Bench) -> None:
    for frontend, count in ((bench, 1), (other, 2), (bench, 3)):
        await frontend.ask("POST", "/compute/uid-w0?action=restart", action("restart"))
        assert stored(bench, names.WORKERS, "w0")["spec"]["restarts"] == count


async def test_a_stop_that_is_delivered_again_does_not_stop_what_was_started_since(bench: Bench, other: Bench) -> None:
    await bench.ask("POST", "/compute/uid-w0?action=stop", action("stop"), key=KEY)
    bench.kube.touch(names.WORKERS, "w0")["spec"]["powerState"] = "Running"
    await other.ask("POST", "/compute/uid-w0?action=stop", action("stop"), key=KEY)
    assert stored(bench, names.WORKERS, "w0")["spec"]["powerState"] == "Running"


async def test_start_workers_that_is_delivered_again_starts_none_that_somebody_has_ended(
    bench: Bench, other: Bench
) -> None:
    await bench.ask("POST", START_WORKERS.format(9), key=KEY)
    assert replicas(bench) == 9
    bench.kube.touch(names.WORKER_POOLS, "pool")["spec"] |= {"replicas": 2, "suspend": True}
    answer = await other.ask("POST", START_WORKERS.format(9), key=KEY)
    assert (answer.status, replicas(bench)) == (200, 2)
    assert stored(bench, names.WORKER_POOLS, "pool")["spec"]["suspend"] is True
    await other.ask("POST", START_WORKERS.format(9), key="another")
    assert replicas(bench) == 9


async def test_start_workers_that_made_a_pool_makes_it_once() -> None:
    bench = Bench().fill()
    bench.forget(names.WORKER_POOLS, "pool")
    other = bench.beside()
    await bench.ask("POST", START_WORKERS.format(3), key=KEY)
    bench.kube.touch(names.WORKER_POOLS, "beam")["spec"]["replicas"] = 1
    assert (await other.ask("POST", START_WORKERS.format(3), key=KEY)).status == 200
    assert stored(bench, names.WORKER_POOLS, "beam")["spec"]["replicas"] == 1


@pytest.mark.parametrize(("term", "spec"), [("stop", {"suspend": False}), ("scale", {"replicas": 8})])
async def test_what_a_component_was_told_once_is_not_told_again(
    bench: Bench, other: Bench, term: str, spec: Json
) -> None:
    scheme = "http://simyard.dev/occi/platform/action#" if term == "scale" else COMPONENT_ACTION_SCHEME
    body = action(term, scheme) + ("X-OCCI-Attribute: replicas=2\n" if term == "scale" else "")
    assert (await bench.ask("POST", f"/component/uid-pool?action={term}", body, key=KEY)).status == 200
    changed = stored(bench, names.WORKER_POOLS, "pool")["spec"]
    assert any(changed[name] != value for name, value in spec.items())
    bench.kube.touch(names.WORKER_POOLS, "pool")["spec"] |= spec
    assert (await other.ask("POST", f"/component/uid-pool?action={term}", body, key=KEY)).status == 200
    assert stored(bench, names.WORKER_POOLS, "pool")["spec"] == changed | spec


# Creation


async def test_what_was_made_with_the_last_seat_is_found_again() -> None:
    bench = Bench().fill(services=iter([service(licence={"seats": 1, "taken": 0})]))
    first = await bench.ask("POST", "/compute/", KIND, key=KEY)
    assert first.status == 201
    bench.put(names.SIMULATION_SERVICES, service(licence={"seats": 1, "taken": 1}))
    for frontend in (bench, bench.beside()):
        again = await frontend.ask("POST", "/compute/", KIND, key=KEY)
        assert (again.status, again.body) == (201, first.body)
    assert (await bench.ask("POST", "/compute/", KIND, key="another")).status == 409


# The notes


def test_a_note_is_kept_until_many_newer_ones_are_there() -> None:
    metadata = metadata_of(add_notes({}, metadata_of({}), ["first"]))
    assert find_unnoted_keys(metadata, ["first", "second"]) == ["second"]
    many = [f"later-{number}" for number in range(MAX_ENTRIES)]
    for key in many[:-1]:
        metadata = metadata_of(add_notes({}, metadata, [key]))
    assert find_unnoted_keys(metadata, ["first"]) == []
    metadata = metadata_of(add_notes({}, metadata, many[-1:]))
    assert find_unnoted_keys(metadata, ["first", *many]) == ["first"]


def test_what_changes_at_once_is_noted_as_a_whole_and_other_annotations_stay() -> None:
    keys = [str(number) for number in range(MAX_ENTRIES * 3)]
    change = add_notes({"metadata": {"annotations": {"a": "b"}}, "spec": {"replicas": 1}}, metadata_of({}), keys)
    assert find_unnoted_keys(metadata_of(change), keys) == []
    assert (change["spec"], change["metadata"]["annotations"]["a"]) == ({"replicas": 1}, "b")


def metadata_of(change: Json) -> Metadata:
    return Metadata.model_validate({"name": "x", **change.get("metadata", {})})
