"""Entity tags, 304 and 412."""

from __future__ import annotations

from typing import Any

import pytest
from frontend_objects import Bench, service, worker

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
