# SPDX-License-Identifier: Apache-2.0
"""Links that clients create: the stored object, the ids, and the refusals."""

from __future__ import annotations

from typing import Any

import pytest
from frontend_objects import ADA, Bench, worker

from simyard.api import names
from simyard.occi.errors import OcciError
from simyard.occi.model import Draft, Entity, Link
from simyard.occi.standard import (
    AMQPLINK,
    COMPUTE,
)
from simyard.occi.validation import check_creation


async def link_to(bench: Bench, source: str, *mixins: str, key: str = "", **attributes: Any) -> Entity:
    given = {"occi.core.source": source, "occi.core.target": "amqp:///q", "occi.amqplink.queue": "q", **attributes}
    checked = check_creation(Draft(AMQPLINK, mixins, given), bench.objects.get_model())
    return await bench.objects.create(ADA, checked, key=key)


async def test_an_amqplink_is_kept_shown_by_its_compute_and_goes_with_it() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    made = await link_to(bench, "/compute/uid-w", **{"occi.core.id": "foreign", "occi.core.title": "Mine"})
    assert made.path == "/amqplink/foreign"
    compute = bench.entity("/compute/uid-w")
    assert [link.path for link in compute.links] == ["/amqplink/uid-w", "/amqplink/foreign"]  # type: ignore[union-attr]
    assert bench.objects.list_paths("/amqplink/") == ("/amqplink/foreign", "/amqplink/uid-w")
    [raw] = bench.stored(names.OCCI_LINKS).values()
    assert raw["metadata"]["ownerReferences"][0]["uid"] == "uid-w"
    await bench.objects.delete(ADA, [compute])
    assert not bench.stored(names.OCCI_LINKS) and not bench.stored(names.WORKERS)
    assert bench.objects.get_entity("/amqplink/foreign") is None


async def test_a_link_says_of_which_kinds_its_ends_are_and_goes_with_either() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker("from"), worker("to"))
    await link_to(bench, "/compute/uid-from", **{"occi.core.target": "/compute/uid-to"})
    [path] = [path for path in bench.objects.list_paths("/amqplink/") if "uid" not in path]
    link = bench.entity(path)
    assert isinstance(link, Link) and (link.source_kind, link.target_kind) == (COMPUTE, (COMPUTE,))
    await bench.objects.delete(ADA, [bench.entity("/compute/uid-to")])
    assert not bench.stored(names.OCCI_LINKS)
    assert len(bench.entity("/compute/uid-from").links) == 1  # type: ignore[union-attr]


async def test_a_link_from_nowhere_is_refused() -> None:
    bench = Bench().fill()
    with pytest.raises(OcciError, match="is not a compute of this") as refused:
        await link_to(bench, "/compute/nobody")
    assert refused.value.status == 400


async def test_a_client_s_link_does_not_get_the_provider_s_mixins() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    with pytest.raises(OcciError) as refused:
        await link_to(bench, "/compute/uid-w", "http://simyard.dev/occi/service/beam#interface")
    assert refused.value.status == 403
    assert not bench.stored(names.OCCI_LINKS)


@pytest.mark.parametrize("heard", [True, False])
@pytest.mark.parametrize("key", ["", "a key"])
async def test_a_compute_and_its_amqplink_have_one_id_that_nothing_else_gets(heard: bool, key: str) -> None:
    """This holds for a frontend that knows the other entity, and for one that does not."""
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    await bench.create(**{"occi.core.id": "compute"})
    await link_to(bench, "/compute/uid-w", **{"occi.core.id": "link"})
    asked = bench if heard else bench.beside()
    asked.hear(names.WORKERS, bench.stored(names.WORKERS)["w"])
    assert (await asked.create(key=key, **{"occi.core.id": "link"})).id != "link"
    for taken in ("compute", "uid-w"):
        assert (await link_to(asked, "/compute/uid-w", key=key, **{"occi.core.id": taken})).id != taken
        key = key and f"{key} again"


async def test_what_put_creates_has_the_id_of_its_path_or_is_not_created() -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    assert (await link_to(bench, "/compute/uid-w", **{"occi.core.id": "x"})).path == "/amqplink/x"
    kind = 'Category: compute; scheme="http://schemas.ogf.org/occi/infrastructure#"; class="kind"\n'
    assert (await bench.ask("PUT", "/compute/x", kind)).status == 409
    assert list(bench.stored(names.WORKERS)) == ["w"]


async def test_a_link_may_start_at_a_compute_that_another_frontend_has_just_made() -> None:
    bench = Bench().fill()
    other = bench.beside()
    made = await bench.create(**{"occi.core.id": "mine"})
    kind = 'Category: amqplink; scheme="http://schemas.ogf.org/occi/infrastructure#"; class="kind"\n'
    ends = f'occi.core.source="{made.path}", occi.core.target="amqp:///q", occi.amqplink.queue="q"'
    assert (await other.ask("POST", "/amqplink/", f"{kind}X-OCCI-Attribute: {ends}")).status == 201
