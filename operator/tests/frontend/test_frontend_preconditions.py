# SPDX-License-Identifier: Apache-2.0
"""Entity tags, 304 and 412."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from frontend_objects import Bench, link, pool, service, worker

from simyard.api import names

COMPUTE = "/compute/uid-w"
KIND = 'Category: compute; scheme="http://schemas.ogf.org/occi/infrastructure#"; class="kind"\n'
RETITLED = 'X-OCCI-Attribute: occi.core.title="another"'
SEEN = {"state": "waits"}
TAG = 'Category: seen; scheme="http://example.org/tags#"; class="mixin"; location="/seen/"'


@pytest.fixture
def bench() -> Bench:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker("w", values=SEEN))
    return bench


async def tag(bench: Bench, path: str = COMPUTE, accept: str = "text/plain") -> str:
    response = await bench.ask("GET", path, accept=accept)
    assert response.status == 200
    return dict(response.headers)["ETag"]


async def status(bench: Bench, method: str, path: str = COMPUTE, body: str = "", **headers: Any) -> int:
    return (await bench.ask(method, path, body, **headers)).status


async def test_what_a_client_has_already_is_not_sent_again(bench: Bench) -> None:
    for path in (COMPUTE, "/amqplink/uid-w", "/application/uid-beam", "/network/site", "/-/"):
        found = await tag(bench, path)
        again = await bench.ask("GET", path, if_none_match=f'"x", W/{found}')
        assert (again.status, again.body, dict(again.headers)["ETag"]) == (304, b"", found)
        assert await status(bench, "GET", path, if_none_match=found, accept="application/json") == 200
        assert await status(bench, "GET", path, if_none_match="*") == 304


async def test_frontends_give_one_state_one_tag_and_another_state_another(bench: Bench) -> None:
    other = Bench().fill()
    other.put(names.WORKERS, worker("w", values=SEEN))
    for accept in ("text/plain", "text/occi", "application/json"):
        assert await tag(bench, accept=accept) == await tag(other, accept=accept)
    tags = [await tag(bench)]
    bench.put(names.WORKERS, worker("w", values={"state": "runs"}))
    tags.append(await tag(bench))
    bench.put(names.WORKERS, worker("w", values=SEEN, title="named"))
    tags.append(await tag(bench))
    bench.put(names.WORKERS, worker("w", values=SEEN, title="named", addresses=[{"address": "10.0.0.7"}]))
    tags.append(await tag(bench))
    await bench.ask("POST", "/-/", TAG)
    await bench.ask("POST", "/seen/", f"X-OCCI-Location: {COMPUTE}")
    tags.append(await tag(bench))
    bench.put(names.SIMULATION_SERVICES, service(ready=False))
    assert len({*tags}) == 5


async def test_a_change_of_another_client_is_not_overwritten(bench: Bench) -> None:
    before = await tag(bench)
    assert await status(bench, "POST", body=RETITLED, if_match=before) == 200
    assert await tag(bench) != before
    for method, body in (("POST", RETITLED), ("PUT", KIND + RETITLED), ("DELETE", "")):
        assert await status(bench, method, body=body, if_match=before) == 412
    assert await status(bench, "POST", f"{COMPUTE}?action=stop", if_match=before) == 412
    assert bench.stored(names.WORKERS)["w"]["spec"]["title"] == "another"
    answer = await bench.ask("PUT", COMPUTE, KIND + RETITLED, if_match=f'"x", {await tag(bench)}')
    assert (answer.status, dict(answer.headers)["ETag"]) == (200, await tag(bench))
    assert await status(bench, "DELETE", if_match="*") == 200


async def test_of_two_frontends_that_get_the_same_tag_at_once_one_refuses(bench: Bench) -> None:
    other = bench.beside()
    other.hear(names.WORKERS, *bench.stored(names.WORKERS).values())
    before = await tag(bench)
    assert await status(bench, "POST", body=RETITLED, if_match=before) == 200
    late = 'X-OCCI-Attribute: occi.core.title="late"'
    assert await status(other, "POST", body=late, if_match=before) == 412, "it has not heard of the change"
    assert bench.stored(names.WORKERS)["w"]["spec"]["title"] == "another"


@pytest.fixture
def late(bench: Bench) -> Bench:
    """Another frontend, which hears of no change from now on."""
    other = bench.beside()
    bench.put(names.WORKER_POOLS, pool(replicas=3))
    bench.put(names.WORKERS, worker("pool-0", pool="pool", values=SEEN), worker("pool-1", pool="pool"))
    bench.put(names.OCCI_LINKS, link("results", COMPUTE))
    for resource in (names.WORKERS, names.WORKER_POOLS, names.OCCI_LINKS):
        other.hear(resource, *bench.stored(resource).values())
    return other


LATE = [COMPUTE, "/compute/uid-pool-0", "/amqplink/uid-results"]


async def retitled(bench: Bench, path: str) -> str:
    """Change an entity; gives its tag before the change."""
    before = await tag(bench, path)
    assert await status(bench, "POST", path, RETITLED, if_match=before) == 200
    return before


@pytest.mark.parametrize("path", LATE)
async def test_what_has_changed_elsewhere_is_not_deleted(bench: Bench, late: Bench, path: str) -> None:
    before = await retitled(bench, path)
    stored = copy.deepcopy(bench.kube.objects)
    assert await status(late, "DELETE", path, if_match=before) == 412
    assert bench.kube.objects == stored, "nothing is marked, scaled or deleted"
    assert await status(late, "DELETE", path, if_match=await tag(bench, path)) == 200


@pytest.mark.parametrize("path", LATE)
@pytest.mark.parametrize("key", ["", "a key"])
async def test_a_hidden_change_does_not_stop_a_deletion(bench: Bench, late: Bench, path: str, key: str) -> None:
    before = await tag(late, path)
    for resource in (names.WORKERS, names.OCCI_LINKS):
        for name in bench.stored(resource):
            bench.kube.touch(resource, name)
    assert (await late.ask("DELETE", path, if_match=before, key=key)).status == 200
    assert late.objects.get_entity(path) is None


async def test_a_pool_that_was_scaled_elsewhere_is_not_deleted(bench: Bench, late: Bench) -> None:
    before = await tag(late, "/component/uid-pool")
    bench.kube.touch(names.WORKER_POOLS, "pool")
    assert await status(late, "DELETE", "/component/uid-pool", if_match=before) == 200
    assert not bench.stored(names.WORKER_POOLS)


async def test_a_deletion_is_tried_again_only_so_often(bench: Bench, late: Bench) -> None:
    def touch(verb: str, plural: str, name: str) -> None:
        if plural == "workers":
            bench.kube.touch(names.WORKERS, name)

    late.kube.before = touch
    assert await status(late, "DELETE", if_match=await tag(late)) == 503
    assert "w" in bench.stored(names.WORKERS)


async def test_what_is_gone_elsewhere_is_deleted_only_without_a_condition(bench: Bench, late: Bench) -> None:
    del bench.kube.objects["workers", "w"]
    before = await tag(late)
    assert await status(late, "DELETE", if_match=before) == 412
    assert await status(late, "GET") == 404
    late.hear(names.WORKERS, worker("w", uid="uid-again"))
    del bench.kube.objects["workers", "pool-1"]
    assert await status(late, "DELETE", "/compute/uid-pool-1") == 200


@pytest.mark.parametrize("action", ["stop", "suspend", "restart", "solve&load=1", "sweep"])
async def test_what_has_changed_elsewhere_is_not_acted_on(bench: Bench, late: Bench, action: str) -> None:
    before = await retitled(bench, COMPUTE)
    stored = copy.deepcopy(bench.kube.objects)
    assert await status(late, "POST", f"{COMPUTE}?action={action}", if_match=before) == 412
    assert bench.kube.objects == stored


@pytest.mark.parametrize("action", ["stop", "restart", "sweep"])
async def test_a_hidden_change_does_not_stop_an_action(bench: Bench, late: Bench, action: str) -> None:
    before = await tag(late)
    bench.kube.touch(names.WORKERS, "w")
    assert await status(late, "POST", f"{COMPUTE}?action={action}", if_match=before) == 200


async def test_a_weak_tag_never_matches_if_match_and_matches_if_none_match(bench: Bench) -> None:
    strong = await tag(bench)
    for weak in (f"W/{strong}", f"w/{strong}", f'"x",W/{strong}', f"W/{strong}, W/{strong}"):
        for method, query, body in (("POST", "", RETITLED), ("POST", "?action=stop", ""), ("DELETE", "", "")):
            assert await status(bench, method, COMPUTE + query, body, if_match=weak) == 412, weak
    assert await status(bench, "POST", body=RETITLED, if_none_match=f"W/{strong}") == 412
    assert await status(bench, "POST", body=RETITLED, if_match=f"W/{strong}, {strong}") == 200


async def test_a_change_behind_the_condition_that_clients_do_not_see_is_no_conflict(bench: Bench) -> None:
    other = bench.beside()
    other.hear(names.WORKERS, *bench.stored(names.WORKERS).values())
    bench.kube.touch(names.WORKERS, "w")
    assert await status(other, "POST", body=RETITLED, if_match=await tag(other)) == 200


async def test_what_is_changed_on_two_frontends_at_once_is_all_kept(bench: Bench) -> None:
    other = bench.beside()
    other.hear(names.WORKERS, *bench.stored(names.WORKERS).values())
    for frontend, change in ((bench, "occi.compute.speed=2"), (other, 'occi.compute.architecture="x64"')):
        assert await status(frontend, "POST", body=f"X-OCCI-Attribute: {change}") == 200
    attributes = other.entity(COMPUTE).attributes
    assert (attributes["occi.compute.speed"], attributes["occi.compute.architecture"]) == (2, "x64")


async def test_what_the_service_changes_of_itself_does_not_stop_a_client(bench: Bench) -> None:
    before = await tag(bench)
    bench.put(names.WORKERS, worker("w", values={"state": "runs"}))
    assert await tag(bench) != before
    assert await status(bench, "POST", body=RETITLED, if_match=before) == 200
    now = await tag(bench)
    bench.put(names.WORKERS, worker("w", values={**SEEN, "length": 12}))
    assert await status(bench, "POST", body=RETITLED, if_match=now) == 412


async def test_put_creates_only_where_nothing_is_or_replaces_only_what_is_there(bench: Bench) -> None:
    assert await status(bench, "PUT", "/compute/new", KIND, if_match="*") == 412
    assert await status(bench, "PUT", "/compute/new", KIND, if_none_match="*") == 201
    assert await status(bench, "PUT", "/compute/new", KIND + RETITLED, if_none_match="*") == 412


async def test_conditions_on_a_collection_are_refused_rather_than_ignored(bench: Bench) -> None:
    assert await status(bench, "DELETE", "/compute/", if_match=await tag(bench)) == 412
    assert await status(bench, "POST", "/compute/", KIND, if_none_match="*") == 412
    assert list(bench.stored(names.WORKERS)) == ["w"]
