# SPDX-License-Identifier: Apache-2.0
"""Cached renderings, and the changes after which they are not used any more."""

from __future__ import annotations

import asyncio
import json

import pytest
from occi_memory import Caller, MemoryBackend, compute
from prometheus_client import REGISTRY

from simyard.frontend.entities import renderings
from simyard.frontend.entities.renderings import OVERHEAD_BYTES, BoundedCache


def rendered(of: str) -> float:
    return REGISTRY.get_sample_value("simyard_occi_renderings_total", {"of": of}) or 0.0


async def test_an_unchanged_collection_is_rendered_once_for_all_who_may_see_the_same(call: Caller) -> None:
    first = await call.text("GET", "/compute/?full=true")
    entities, collections = rendered("entity"), rendered("collection")
    assert await Caller(call.backend, "ada", call.handlers).text("GET", "/compute/?full=true") == first
    assert (rendered("entity"), rendered("collection")) == (entities, collections)


async def test_of_a_changed_collection_only_what_changed_is_rendered_again(call: Caller) -> None:
    await call.text("GET", "/compute/?full=true")
    before = rendered("entity")
    call.backend.put(compute(2, **{"occi.compute.cores": 64}))
    assert "occi.compute.cores=64" in await call.text("GET", "/compute/?full=true")
    assert rendered("entity") == before + 1


async def test_a_listing_of_locations_outlives_changes_of_values_but_not_of_members(call: Caller) -> None:
    await call.text("GET", "/compute/")
    before = rendered("collection")
    call.backend.put(compute(2, **{"occi.compute.cores": 64}))
    await call.text("GET", "/compute/")
    assert rendered("collection") == before
    call.backend.remove("/compute/c1")
    assert "c1" not in await call.text("GET", "/compute/")


async def test_an_entity_changes_in_every_rendering_at_once(call: Caller) -> None:
    for accept in ("text/plain", "application/occi+json", "text/occi"):
        for cores in (3, 5):
            call.backend.put(compute(1, **{"occi.compute.cores": cores}))
            for _ in range(2):
                response = await call("GET", "/compute/c1", accept=accept)
                shown = response.body.decode() + str(response.headers)
                assert f"occi.compute.cores={cores}" in shown or json.loads(response.body)["attributes"][
                    "occi.compute.cores"
                ] == cores  # fmt: skip


async def test_members_that_go_while_a_listing_is_rendered_are_left_out(memory: MemoryBackend) -> None:
    call = Caller(memory)
    memory.put(*(compute(f"x{number}") for number in range(renderings.SLICE * 2)))
    paths = memory.list_paths("/compute/")
    memory.list_paths = lambda location: paths  # type: ignore[method-assign]
    memory.remove(paths[-1])
    text = await call.text("GET", "/compute/?full=true")
    assert text.count("Category: compute;") == len(paths) - 1


def test_what_is_kept_is_bounded_and_what_was_not_used_goes_first() -> None:
    kept: BoundedCache[bytes] = BoundedCache("test", 3 * (11 + OVERHEAD_BYTES), len)
    for key in "abc":
        kept.put(key, 1, b"0123456789")
    assert kept.find("a", 1) is not None
    kept.put("d", 1, b"0123456789")
    assert [kept.find(key, 1) is not None for key in "abcd"] == [True, False, True, True]
    kept.put("e", 1, b"x" * 10_000)
    assert kept.find("e", 1) is None and len(kept) == 3
    kept.put("a", 2, b"01234")
    assert kept.find("a", 1) is None and kept.find("a", 2) == b"01234"
    assert kept.bytes == 28 + 3 * OVERHEAD_BYTES


def test_what_keys_and_tokens_take_counts_too() -> None:
    kept: BoundedCache[bytes] = BoundedCache("test", 100_000, len)
    for number in range(100):
        kept.put(f"/{number}{'x' * 10_000}/", 1, b"")
    assert len(kept) < 10
    for number in range(100):
        kept.put(str(number), tuple(map(str, range(number, number + 1000))), b"")
    assert len(kept) < 13 and kept.bytes <= 100_000


async def test_listings_with_a_client_s_filter_are_not_kept(call: Caller) -> None:
    def kept() -> float | None:
        return REGISTRY.get_sample_value("simyard_occi_rendering_bytes", {"of": "collection"})

    await call.text("GET", "/compute/")
    before = kept()
    for number in range(20):
        for target in ("/compute/", "/"):
            headers = {"x-occi-attribute": f'occi.core.title="{number}{"x" * 1000}"'}
            assert await call.text("GET", target, **headers) == ""
    assert kept() == before


async def test_others_get_turns_while_a_filter_looks_at_many(memory: MemoryBackend) -> None:
    memory.put(*(compute(f"z{number}") for number in range(10 * renderings.SLICE)))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(count())
    await Caller(memory).text("GET", "/", **{"x-occi-attribute": 'occi.core.title="none"'})
    other.cancel()
    assert turns >= 5


@pytest.mark.parametrize("accept", ["text/plain", "application/occi+json"])
async def test_many_entities_are_all_there_and_in_order(memory: MemoryBackend, accept: str) -> None:
    memory.put(*(compute(f"y{number:04}") for number in range(1000)))
    text = await Caller(memory).text("GET", "/compute/?full=true", accept=accept)
    assert [text.find(f"y{number:04}") for number in range(1000)] == sorted(
        text.find(f"y{number:04}") for number in range(1000)
    )
    assert text.count("Worker y") == 1000
