# SPDX-License-Identifier: Apache-2.0
"""User mixins: stored as objects, visible on every frontend, changed by several frontends at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from frontend_objects import ADA, Bench, worker

from simyard.api import names
from simyard.api.base import Json
from simyard.api.occi import MAX_MIXIN_MEMBERS
from simyard.frontend.entities.mixins import make_mixin_name
from simyard.occi.errors import OcciError
from simyard.occi.model import Action, AttributeSpec, Mixin, ValueType
from simyard.occi.standard import COMPUTE

HURRY = Action("http://example.org/action#", "hurry", "Hurry", (AttributeSpec("by", ValueType.NUMBER, required=True),))
TAG = Mixin(
    "http://example.org/tags#", "urgent", "Urgent", "/urgent/", applies=(COMPUTE,),
    attributes=(AttributeSpec("org.example.due", default="today"),), actions=(HURRY.id,), user=True,
)  # fmt: skip


async def defined(*names_of_workers: str) -> Bench:
    bench = Bench().fill()
    bench.put(names.WORKERS, *(worker(name) for name in names_of_workers))
    await bench.objects.define(ADA, [TAG, HURRY])
    return bench


def members(bench: Bench) -> list[str]:
    return list(bench.stored(names.OCCI_MIXINS)[make_mixin_name(TAG.id)]["spec"].get("members", ()))


async def test_a_mixin_comes_back_as_it_was_defined_with_its_actions() -> None:
    bench = await defined()
    assert bench.objects.get_model().find_mixin(TAG.id) == TAG
    assert bench.objects.get_model().find_action(HURRY.id) == HURRY
    assert bench.objects.get_model().find_by_location("/urgent/") == TAG


async def test_another_frontend_has_it_as_soon_as_it_hears_of_the_object() -> None:
    bench, other = await defined("a"), Bench().fill()
    await bench.objects.associate(ADA, TAG, ["/compute/uid-a"], replace=False)
    other.put(names.WORKERS, worker("a"))
    other.put(names.OCCI_MIXINS, *bench.stored(names.OCCI_MIXINS).values())
    assert other.objects.get_model().find_mixin(TAG.id) == TAG
    assert other.objects.list_paths("/urgent/") == ("/compute/uid-a",)
    assert TAG.id in other.entity("/compute/uid-a").mixins


async def test_defining_it_again_changes_it_and_keeps_its_members() -> None:
    bench = await defined("a")
    await bench.objects.associate(ADA, TAG, ["/compute/uid-a"], replace=False)
    await bench.objects.define(ADA, [Mixin(TAG.scheme, TAG.term, "Other", "/other/", user=True)])
    changed = bench.objects.get_model().find_mixin(TAG.id)
    assert changed is not None and (changed.title, changed.location, changed.actions) == ("Other", "/other/", ())
    assert bench.objects.list_paths("/other/") == ("/compute/uid-a",)


async def test_undefining_it_takes_it_from_everything() -> None:
    bench = await defined("a")
    await bench.objects.associate(ADA, TAG, ["/compute/uid-a"], replace=False)
    key = bench.objects.make_part_key("/compute/uid-a")
    await bench.objects.undefine(ADA, [TAG.id, HURRY.id])
    assert bench.objects.get_model().find_mixin(TAG.id) is bench.objects.get_model().find_action(HURRY.id) is None
    assert TAG.id not in bench.entity("/compute/uid-a").mixins
    assert bench.objects.make_part_key("/compute/uid-a") != key
    await bench.objects.undefine(ADA, [TAG.id])


async def test_members_are_added_replaced_and_taken() -> None:
    bench = await defined("a", "b", "c")
    a, b, c = (f"/compute/uid-{name}" for name in "abc")
    await bench.objects.associate(ADA, TAG, [a, b, a], replace=False)
    await bench.objects.associate(ADA, TAG, [b, c], replace=False)
    assert bench.objects.list_paths("/urgent/") == (a, b, c)
    shown = bench.objects.list_paths("/urgent/")
    await bench.objects.associate(ADA, TAG, [c], replace=False)
    assert bench.objects.list_paths("/urgent/") is shown
    await bench.objects.dissociate(ADA, TAG, [a])
    assert bench.objects.list_paths("/urgent/") == (b, c)
    await bench.objects.associate(ADA, TAG, [a, c], replace=True)
    assert bench.objects.list_paths("/urgent/") == (a, c)
    assert [TAG.id in bench.entity(path).mixins for path in (a, b, c)] == [True, False, True]


async def test_a_member_that_is_deleted_leaves_no_trace_and_one_that_vanishes_is_not_shown() -> None:
    bench = await defined("a", "b", "c")
    paths = [f"/compute/uid-{name}" for name in "abc"]
    await bench.objects.associate(ADA, TAG, paths, replace=False)
    await bench.objects.delete(ADA, [bench.entity(paths[0])])
    assert members(bench) == paths[1:]
    bench.forget(names.WORKERS, "b")
    assert bench.objects.list_paths("/urgent/") == (paths[2],)


async def test_a_compute_is_made_with_mixins_and_their_attributes() -> None:
    bench = await defined()
    made = await bench.create(TAG.id, **{"org.example.due": "tomorrow"})
    assert TAG.id in made.mixins
    assert made.attributes["org.example.due"] == "tomorrow"
    assert bench.objects.list_paths("/urgent/") == (made.path,)
    await bench.objects.undefine(ADA, [TAG.id])
    assert "org.example.due" not in bench.entity(made.path).attributes


async def test_a_compute_is_not_made_when_its_mixin_is_gone_meanwhile() -> None:
    bench = await defined()
    name = make_mixin_name(TAG.id)
    bench.kube.before = lambda verb, plural, _: (
        bench.kube.objects.pop(("occimixins", name), None) if plural == "workers" else None
    )
    with pytest.raises(OcciError) as refused:
        await bench.create(TAG.id)
    assert refused.value.status == 404
    assert not bench.stored(names.WORKERS)


async def test_the_provider_s_mixins_are_neither_given_nor_taken() -> None:
    bench = await defined("a")
    template = bench.objects.get_model().find_by_location("/os_tpl/beam/")
    assert isinstance(template, Mixin)
    for call in (
        bench.objects.associate(ADA, template, ["/compute/uid-a"], replace=False),
        bench.objects.dissociate(ADA, template, ["/compute/uid-a"]),
    ):
        with pytest.raises(OcciError) as refused:
            await call
        assert refused.value.status == 403


async def test_members_that_many_frontends_change_at_the_same_time_are_all_there() -> None:
    first = await defined()
    names_of_workers = [f"w{n}" for n in range(12)]
    frontends = []
    for _ in names_of_workers:
        bench = Bench().fill()
        bench.kube.objects = first.kube.objects
        bench.put(names.WORKERS, *(worker(name) for name in names_of_workers))
        bench.put(names.OCCI_MIXINS, *first.stored(names.OCCI_MIXINS).values())
        frontends.append(bench)
    paths = [f"/compute/uid-{name}" for name in names_of_workers]
    await asyncio.gather(
        *(
            bench.objects.associate(ADA, TAG, [path, paths[0]], replace=False)
            for bench, path in zip(frontends, paths, strict=True)
        )
    )
    assert sorted(members(first)) == sorted(paths)
    await asyncio.gather(
        *(bench.objects.dissociate(ADA, TAG, [path]) for bench, path in zip(frontends[:4], paths, strict=False))
    )
    assert sorted(members(first)) == sorted(paths[4:])


async def test_more_members_than_an_object_holds_are_refused_and_dead_ones_make_room() -> None:
    bench = await defined("a", "b")
    dead = [f"/compute/dead-{n}" for n in range(MAX_MIXIN_MEMBERS)]
    await bench.objects.associate(ADA, TAG, dead, replace=True)
    await bench.objects.associate(ADA, TAG, ["/compute/uid-a"], replace=False)
    assert members(bench) == ["/compute/uid-a"]
    with pytest.raises(OcciError, match="10001 members") as refused:
        await bench.objects.associate(ADA, TAG, [*dead, "/compute/uid-b"], replace=True)
    assert refused.value.status == 409


async def test_of_those_who_claim_one_location_at_the_same_moment_one_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench().fill()
    frontends = [bench, bench.beside()]
    for frontend in frontends:
        create = frontend.kube.create

        async def at_the_same_moment(*args: Any, create: Any = create) -> Json:
            made: Json = await create(*args)
            for _ in range(10):
                await asyncio.sleep(0)
            return made

        monkeypatch.setattr(frontend.kube, "create", at_the_same_moment)
    tag = 'Category: t{}; scheme="http://example.org/t#"; class="mixin"; location="/one/"'
    answers = await asyncio.gather(*(frontends[n % 2].ask("POST", "/-/", tag.format(n)) for n in range(8)))
    assert sorted(answer.status for answer in answers) == [200] + [409] * 7
    [stored] = bench.stored(names.OCCI_MIXINS).values()
    assert answers[int(stored["spec"]["term"].removeprefix("t"))].status == 200


async def test_a_mixin_does_not_move_to_the_location_of_one_that_this_frontend_has_not_heard_of() -> None:
    bench = await defined()
    other = bench.beside()
    taken = Mixin(TAG.scheme, "other", "", "/other/", user=True)
    await other.objects.define(ADA, [taken])
    with pytest.raises(OcciError, match="is taken by") as refused:
        await bench.objects.define(ADA, [Mixin(TAG.scheme, TAG.term, "", "/other/", user=True)])
    assert refused.value.status == 409
    assert bench.stored(names.OCCI_MIXINS)[make_mixin_name(TAG.id)]["spec"]["location"] == "/urgent/"
