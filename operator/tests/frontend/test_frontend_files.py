# SPDX-License-Identifier: Apache-2.0
"""Files over OCCI: paths in attributes and results, and redirections to the content."""

import orjson
import pytest
from frontend_objects import Bench, service, worker

from simyard.api import names
from simyard.api.base import Json
from simyard.api.service_action import ServiceAction
from simyard.api.simulation_service import DeclaredValue
from simyard.frontend.changes.actions import read_finished
from simyard.frontend.entities.file_links import render_files
from simyard_adapter.declarations import Value
from simyard_adapter.file_urls import AllowedUrls

ADDRESS = f"sha256:{'0' * 64}"
MISSING = f"sha256:{'1' * 64}"
FILE: Json = {"file": ADDRESS, "name": "mesh.inp", "bytes": 3}
URL = "https://s3.example/bucket/key?X-Amz-Signature=secret"
ALLOWED = "https://data.example.com/"
INTERFACE: Json = {
    "actions": [
        {
            "name": "mill",
            "mode": "Async",
            "parameters": [
                {"name": "mesh", "type": "file", "required": True},
                {"name": "loads", "type": "array", "items": {"type": "file"}},
            ],
            "result": [{"name": "field", "type": "file"}, {"name": "stresses", "type": "array"}],
        },
    ],
    "attributes": [
        {"name": "mesh", "type": "file"},
        {"name": "frames", "type": "array", "items": {"type": "file"}},
        {"name": "settings", "type": "object"},
    ],
}


@pytest.fixture
def bench() -> Bench:
    bench = Bench(file_urls=AllowedUrls((ALLOWED,))).fill(services=iter([service(interface=INTERFACE)]))
    bench.put(names.WORKERS, worker(values={"mesh": FILE, "frames": [FILE, FILE], "settings": {"file": "a"}}))
    bench.kube.put(names.FILES, {"metadata": {"name": ADDRESS}, "status": {"download": {"method": "GET", "url": URL}}})
    return bench


async def test_file_attributes_are_paths_that_a_client_can_get(bench: Bench) -> None:
    attributes = bench.entity("/compute/uid-w").attributes
    assert attributes["cloud4e.mesh"] == f"/files/{ADDRESS}"
    assert attributes["cloud4e.frames"] == [f"/files/{ADDRESS}"] * 2
    assert attributes["cloud4e.settings"] == {"file": "a"}
    response = await bench.ask("GET", "/compute/uid-w", accept="text/plain")
    assert f'cloud4e.mesh="/files/{ADDRESS}"'.encode() in response.body
    model = await bench.ask("GET", "/-/", accept="application/json")
    assert b'"cloud4e.mesh":{"mutable":false,"required":false,"type":"string"' in model.body.replace(b" ", b"")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_path_of_a_file_redirects_to_its_content(bench: Bench, method: str) -> None:
    response = await bench.ask(method, f"/files/{ADDRESS}")
    assert response.status == 307
    assert dict(response.headers) == {"Location": URL, "Cache-Control": "no-store"}
    assert response.body == b""
    review = bench.kube.reviews[0]
    assert (review["verb"], review["group"], review["resource"]) == ("get", names.SUBRESOURCES_GROUP, "files")


async def test_a_user_without_the_right_gets_no_url(bench: Bench) -> None:
    bench.kube.denied = lambda asked: bool(asked["resource"] == "files")
    response = await bench.ask("GET", f"/files/{ADDRESS}")
    assert response.status == 403
    assert b"may not get files.subresources.simyard.dev" in response.body
    assert ("get", "files", ADDRESS) not in bench.kube.calls


async def test_a_file_that_does_not_exist_and_other_paths_are_404(bench: Bench) -> None:
    for path in (f"/files/{MISSING}", "/files/none", f"/other/{ADDRESS}"):
        assert (await bench.ask("GET", path)).status == 404
    for method in ("PUT", "DELETE", "POST"):
        assert (await bench.ask(method, f"/files/{ADDRESS}")).status in (400, 404, 405)


async def test_a_file_store_that_does_not_answer_is_503(bench: Bench) -> None:
    bench.kube.put(names.FILES, {"metadata": {"name": ADDRESS}, "status": {}})
    assert (await bench.ask("GET", f"/files/{ADDRESS}")).status == 503


def test_results_have_paths_in_place_of_declared_files_only() -> None:
    declared = [
        Value.from_json(DeclaredValue.model_validate(item).to_json())
        for item in (*INTERFACE["attributes"], {"name": "count", "type": "integer"})
    ]
    result = {"mesh": FILE, "frames": [FILE], "settings": FILE, "count": 3, "absent": None}
    path = f"/files/{ADDRESS}"
    assert render_files(result, declared) == {"mesh": path, "frames": [path], "settings": FILE, "count": 3}


def text_of(mesh: str, loads: str = "") -> str:
    lines = ['Category: mill; scheme="http://cloud4e/beam/action#"; class="action"', f'X-OCCI-Attribute: mesh="{mesh}"']
    return "\n".join([*lines, *([f'X-OCCI-Attribute: loads="{loads}"'] if loads else [])])


@pytest.mark.parametrize(
    ("mesh", "stored"),
    [
        (f"/files/{ADDRESS}", {"file": ADDRESS}),
        (f"{ALLOWED}deck.inp", {"url": f"{ALLOWED}deck.inp"}),
        (rf"{{\"file\": \"{ADDRESS}\"}}", {"file": ADDRESS}),
    ],
)
async def test_a_parameter_is_the_path_of_a_file_a_url_or_an_object(bench: Bench, mesh: str, stored: Json) -> None:
    answer = await bench.ask("POST", "/compute/uid-w?action=mill&wait=false", text_of(mesh, rf"[\"/files/{ADDRESS}\"]"))
    assert answer.status == 200, answer.body
    [recorded] = bench.stored(names.SERVICE_ACTIONS).values()
    assert recorded["spec"]["parameters"] == {"mesh": stored, "loads": [{"file": ADDRESS}]}


async def test_a_parameter_in_json_may_be_an_object(bench: Bench) -> None:
    body = orjson.dumps({"action": "http://cloud4e/beam/action#mill", "attributes": {"mesh": FILE}})
    answer = await bench.ask(
        "POST", "/compute/uid-w?action=mill&wait=false", body.decode(), content_type="application/json"
    )
    assert answer.status == 200, answer.body
    [recorded] = bench.stored(names.SERVICE_ACTIONS).values()
    assert recorded["spec"]["parameters"] == {"mesh": FILE}


@pytest.mark.parametrize(
    ("mesh", "problem"),
    [
        ("https://other.example.com/deck.inp", b"parameters.mesh.url: is not below a URL of files.urls"),
        ("http://data.example.com/deck.inp", b"parameters.mesh.url: must be a URL that begins with https://"),
        ("/files/none", b"parameters.mesh: must be an object such as"),
        ("{", b"parameters.mesh: must be an object such as"),
    ],
)
async def test_another_text_is_refused_with_its_parameter(bench: Bench, mesh: str, problem: bytes) -> None:
    answer = await bench.ask("POST", "/compute/uid-w?action=mill&wait=false", text_of(mesh))
    assert answer.status == 400
    assert problem in answer.body
    assert not bench.stored(names.SERVICE_ACTIONS)


def test_a_result_in_the_store_is_a_path_beside_the_files() -> None:
    stored = {"file": MISSING, "name": "result.json", "bytes": 100_000, "mediaType": "application/json"}
    complete = {
        "type": "Complete",
        "status": "True",
        "reason": "Succeeded",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    action = ServiceAction.model_validate(
        {
            "metadata": {"name": "a", "namespace": "b", "uid": "c"},
            "spec": {"target": {"kind": "Worker", "name": "w"}, "action": "mill"},
            "status": {"result": {"field": FILE}, "resultFile": stored, "conditions": [complete]},
        }
    )
    assert read_finished(action) == {"field": FILE, "org.simyard.resultfile": f"/files/{MISSING}"}
