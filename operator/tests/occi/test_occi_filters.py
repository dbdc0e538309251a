# SPDX-License-Identifier: Apache-2.0
"""Filters and pages of listings (sections 6 and 9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from occi_objects import BEAM, MINE, MODEL, START, STOP, make_amqplink, make_compute

from simyard.occi.errors import OcciError
from simyard.occi.filters import Filter, make_filter, matches, select
from simyard.occi.model import LINK, RESOURCE
from simyard.occi.negotiation import Rendering
from simyard.occi.pages import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, Page, read_page
from simyard.occi.parsing import parse
from simyard.occi.standard import COMPUTE, NETWORK, OS_TPL


def wanted(*headers: tuple[str, str]) -> Filter:
    return make_filter(parse(Rendering.TEXT_OCCI, headers, b"", MODEL), MODEL)


def category(category_id: str, class_name: str) -> tuple[str, str]:
    scheme, _, term = category_id.rpartition("#")
    return "Category", f'{term}; scheme="{scheme}#"; class="{class_name}"'


COMPUTE_1 = make_compute(mixins=(BEAM.id, MINE.id), actions=(START,), title="one")
COMPUTE_2 = make_compute(id="c2", path="/compute/c2", attributes={"occi.compute.cores": 4})
LINK_1 = make_amqplink()
ALL = (COMPUTE_1, COMPUTE_2, LINK_1)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], ALL),
        ([category(COMPUTE, "kind")], (COMPUTE_1, COMPUTE_2)),
        ([category(RESOURCE, "kind")], (COMPUTE_1, COMPUTE_2)),
        ([category(LINK, "kind")], (LINK_1,)),
        ([category(NETWORK, "kind")], ()),
        ([category(NETWORK, "kind"), category(COMPUTE, "kind")], (COMPUTE_1, COMPUTE_2)),
        ([category(MINE.id, "mixin")], (COMPUTE_1,)),
        ([category(OS_TPL, "mixin")], (COMPUTE_1,)),
        ([category(START, "action")], (COMPUTE_1,)),
        ([category(STOP, "action")], ()),
        ([("X-OCCI-Attribute", "occi.compute.cores=4")], (COMPUTE_2,)),
        ([("X-OCCI-Attribute", 'occi.compute.cores="4"')], (COMPUTE_2,)),
        ([("X-OCCI-Attribute", "occi.compute.cores=4.0")], (COMPUTE_2,)),
        ([("X-OCCI-Attribute", 'occi.compute.cores="4.0"')], (COMPUTE_2,)),
        ([("X-OCCI-Attribute", "occi.compute.cores=4.5")], ()),
        ([("X-OCCI-Attribute", 'occi.core.id="c1"')], (COMPUTE_1,)),
        ([("X-OCCI-Attribute", 'occi.core.title="one", occi.compute.cores=2')], (COMPUTE_1,)),
        ([("X-OCCI-Attribute", 'occi.core.title="one", occi.compute.cores=4')], ()),
        ([("X-OCCI-Attribute", 'occi.core.source="/compute/c1"')], (LINK_1,)),
        ([("X-OCCI-Attribute", 'occi.core.summary=""')], ()),
        ([("X-OCCI-Attribute", "com.example.other=1")], ()),
        ([category(COMPUTE, "kind"), ("X-OCCI-Attribute", 'occi.compute.state="active"')], (COMPUTE_1,)),
    ],
)
def test_a_filter_keeps_what_matches_all_of_it(headers: list[tuple[str, str]], expected: tuple[object, ...]) -> None:
    found = wanted(*headers)
    assert tuple(entity for entity in ALL if matches(entity, found)) == expected
    assert bool(found) == bool(headers)
    assert hash(found) == hash(wanted(*headers))


def test_an_unknown_category_in_a_filter_is_refused() -> None:
    with pytest.raises(OcciError, match=r"the category .* is unknown") as caught:
        wanted(category("http://x#y", "kind"))
    assert caught.value.status == 400


def test_the_query_interface_is_filtered_by_category() -> None:
    draft = parse(Rendering.TEXT_OCCI, [category(COMPUTE, "kind"), category(MINE.id, "mixin")], b"", MODEL)
    assert {found.id for found in select(MODEL.ordered, draft)} == {COMPUTE, MINE.id}
    assert select(MODEL.ordered, parse(Rendering.TEXT_OCCI, (), b"", MODEL)) == MODEL.ordered
    unknown = parse(Rendering.TEXT_OCCI, [category("http://x#y", "mixin")], b"", MODEL)
    with pytest.raises(OcciError, match=r"the category .* is unknown") as caught:
        select(MODEL.ordered, unknown)
    assert caught.value.status == 400


def test_pages_are_counted_from_one() -> None:
    assert read_page({"page": "2", "number": "3"}).select(range(10)) == range(3, 6)
    assert read_page({"page": "4", "number": "3"}).select([*range(10)]) == [9]
    assert read_page({"page": "5", "number": "3"}).select([*range(10)]) == []
    assert read_page({"number": "3"}) == Page(1, 3)
    assert read_page({"page": "2"}) == Page(2, DEFAULT_PAGE_SIZE)
    assert read_page({"action": "x"}).select([1, 2]) == [1, 2]


@pytest.mark.parametrize("text", ["9" * 20, "1" * 5000, "0" * 30 + "9"])
def test_however_far_past_the_end_a_page_is_empty(text: str) -> None:
    assert read_page({"page": text, "number": "1"}).select([1, 2]) == []


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "1.5", " 1", "0" * 30, "١"])
@pytest.mark.parametrize("name", ["page", "number"])
def test_a_page_is_a_positive_integer(name: str, text: str) -> None:
    with pytest.raises(OcciError) as caught:
        read_page({name: text})
    assert caught.value.status == 400


def test_a_page_that_is_too_large_is_413() -> None:
    assert read_page({"number": str(MAX_PAGE_SIZE)}).number == MAX_PAGE_SIZE
    for number in (str(MAX_PAGE_SIZE + 1), "1" * 5000):
        with pytest.raises(OcciError) as caught:
            read_page({"number": number})
        assert caught.value.status == 413


@given(st.lists(st.integers(), max_size=30), st.integers(1, 12))
def test_pages_put_together_are_the_whole(members: list[int], number: int) -> None:
    pages = [read_page({"page": str(place), "number": str(number)}).select(members) for place in range(1, 33)]
    assert [member for part in pages for member in part] == members
