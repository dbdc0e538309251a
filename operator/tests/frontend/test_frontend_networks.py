# SPDX-License-Identifier: Apache-2.0
"""Networks of sites, and interfaces of computes."""

from __future__ import annotations

import re

import orjson
import pytest
from frontend_objects import Bench, site, worker

from simyard.api import names
from simyard.api.base import Json
from simyard.occi.model import Resource

EXTERNAL: Json = {"address": "203.0.113.7", "interface": "eth1", "mac": "02:00:00:00:00:07"}
INTERNAL: Json = {"address": "10.0.0.7"}
TAG = 'Category: seen; scheme="http://example.org/tags#"; class="mixin"; location="/seen/"'


@pytest.fixture
def bench() -> Bench:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker("w", addresses=[EXTERNAL, INTERNAL]))
    return bench


def found_by_infrastructure_manager(text: str) -> list[tuple[str, str, str]]:
    """Return number, address and path of each interface, read from a compute as Infrastructure Manager does."""
    found = []
    for line in text.split("\n"):
        if "Link:" not in line or "/network/" not in line:
            continue
        parts = {key.strip(): value.strip('"') for key, _, value in (part.partition("=") for part in line.split(";"))}
        [number, *_] = re.findall(r"\d+", parts["occi.networkinterface.interface"])
        found.append((number, parts["occi.networkinterface.address"], parts["self"]))
    return found


async def test_infrastructure_manager_finds_the_addresses_of_a_compute(bench: Bench) -> None:
    shown = (await bench.ask("GET", "/compute/uid-w")).body.decode()
    assert found_by_infrastructure_manager(shown) == [
        ("1", "203.0.113.7", "/networkinterface/uid-w_0"),
        ("1", "10.0.0.7", "/networkinterface/uid-w_1"),
    ]


async def test_an_interface_links_its_compute_with_the_network_of_its_site(bench: Bench) -> None:
    shown = orjson.loads((await bench.ask("GET", "/networkinterface/uid-w_0", accept="application/json")).body)
    assert shown["source"]["location"] == "/compute/uid-w"
    assert shown["attributes"] == {
        "occi.networkinterface.interface": "eth1",
        "occi.networkinterface.mac": "02:00:00:00:00:07",
        "occi.networkinterface.state": "active",
        "occi.networkinterface.address": "203.0.113.7",
        "occi.networkinterface.allocation": "dynamic",
    }
    network = await bench.ask("GET", shown["target"]["location"], accept="application/json")
    assert orjson.loads(network.body)["attributes"]["occi.network.state"] == "active"
    for path in ("uid-w_2", "uid-w_00", "uid-w_", "uid-w", "_0", "uid-w_²"):
        assert (await bench.ask("GET", f"/networkinterface/{path}")).status == 404


async def test_interfaces_come_and_go_with_addresses_and_computes(bench: Bench) -> None:
    both = ("/networkinterface/uid-w_0", "/networkinterface/uid-w_1")
    assert bench.objects.list_paths("/networkinterface/") == bench.objects.list_paths("/ipnetworkinterface/") == both
    bench.put(names.WORKERS, worker("w", addresses=[INTERNAL]))
    assert bench.objects.list_paths("/networkinterface/") == both[:1]
    [_, link] = getattr(bench.entity("/compute/uid-w"), "links", ())
    assert link.attributes["occi.networkinterface.address"] == "10.0.0.7"
    bench.forget(names.WORKERS, "w")
    assert bench.objects.list_paths("/networkinterface/") == ()


async def test_a_namespace_sees_the_networks_of_the_sites_that_it_may_use_and_those_where_it_has_workers() -> None:
    bench = Bench().fill()
    closed = {"from": "Selected", "names": ["other"]}
    bench.put(names.CLOUD_SITES, site("closed", allowedNamespaces=closed), site("broken", ready=False))
    assert bench.objects.list_paths("/network/") == ("/network/broken", "/network/site")
    assert bench.entity("/network/broken").attributes["occi.network.state"] == "inactive"
    assert (await bench.ask("GET", "/network/closed")).status == 404
    bench.put(names.WORKERS, {**worker("w"), "spec": {"serviceRef": {"name": "beam"}, "site": "closed"}})
    assert isinstance(bench.entity("/network/closed"), Resource)
    bench.forget(names.CLOUD_SITES, "broken")
    assert bench.objects.list_paths("/network/") == ("/network/site",)


@pytest.mark.parametrize("path", ["/network/site", "/networkinterface/uid-w_0"])
async def test_what_a_site_says_cannot_be_made_changed_or_deleted(bench: Bench, path: str) -> None:
    shown = (await bench.ask("GET", path)).body
    assert (await bench.ask("PUT", path, shown)).status == 200
    for change in ("occi.core.title=x", 'occi.networkinterface.mac="02:00:00:00:00:08"', 'occi.network.label="x"'):
        status = (await bench.ask("POST", path, f"X-OCCI-Attribute: {change}")).status
        assert status == (400 if change.partition("=")[0] not in shown.decode() + "occi.core.title" else 403)
    assert (await bench.ask("DELETE", path)).status == 403
    assert (await bench.ask("DELETE", "/")).status == 200
    assert (await bench.ask("GET", "/network/site")).status == 200


async def test_a_user_mixin_of_an_interface_is_shown_there_and_in_its_compute(bench: Bench) -> None:
    path = "/networkinterface/uid-w_1"
    assert (await bench.ask("GET", "/compute/uid-w")).body.count(b"tags#seen") == 0
    assert (await bench.ask("POST", "/-/", TAG)).status == 200
    answer = await bench.ask("POST", "/seen/", f"X-OCCI-Location: {path}", accept="application/json")
    assert [link["id"] for link in orjson.loads(answer.body)["links"]] == ["uid-w_1"]
    assert (await bench.ask("GET", "/compute/uid-w")).body.count(b"tags#seen") == 1


async def test_disks_are_not_offered(bench: Bench) -> None:
    assert b"storage" not in (await bench.ask("GET", "/-/")).body
    assert (await bench.ask("GET", "/storage/")).status == 404
