# SPDX-License-Identifier: Apache-2.0
"""Round trips: parse(render(x)) == x, for every rendering that contains all of x."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from occi_objects import MODEL, categories, draft_of, entities, in_json, in_text, uris

from simyard.occi.model import Category, Entity
from simyard.occi.negotiation import Rendering
from simyard.occi.parsing import parse
from simyard.occi.rendering import render_entity, render_locations, render_model

FULL = [Rendering.TEXT_PLAIN, Rendering.TEXT_OCCI, Rendering.JSON]


def typed(value: object) -> object:
    """Return a value in a form in which 1, 1.0 and True differ."""
    if isinstance(value, list):
        return [typed(item) for item in value]
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    return (type(value), value)


@pytest.mark.parametrize("rendering", FULL)
@given(entity=entities)
def test_an_entity_is_read_as_it_was_rendered(rendering: Rendering, entity: Entity) -> None:
    rendered = render_entity(entity, rendering, "https://example.com", MODEL)
    draft = parse(rendering, rendered.headers, rendered.body, MODEL)
    expected = draft_of(entity, rendering)
    assert replace(draft, definitions=()) == expected
    assert typed(dict(draft.attributes)) == typed(dict(expected.attributes))


@given(entity=entities)
def test_text_has_one_line_for_each_fact_and_headers_are_ascii(entity: Entity) -> None:
    body = render_entity(entity, Rendering.TEXT_PLAIN, "", MODEL).body.decode()
    fields = ("Category: ", "X-OCCI-Attribute: ", "Link: ")
    assert all(line.startswith(fields) and not line.endswith(";") for line in body.removesuffix("\n").splitlines())
    rendered = render_entity(entity, Rendering.TEXT_OCCI, "", MODEL)
    assert rendered.body == b"OK"
    assert all(value.isascii() and value.isprintable() for _, value in rendered.headers)
    assert len({name for name, _ in rendered.headers}) == len(rendered.headers)


@given(given_categories=st.lists(categories, max_size=4, unique_by=lambda category: category.id))
def test_categories_are_read_as_they_were_rendered(given_categories: list[Category]) -> None:
    as_json = render_model(given_categories, Rendering.JSON, MODEL)
    read = parse(Rendering.JSON, (), as_json.body, MODEL).definitions
    assert {c.id: c for c in read} == {c.id: in_json(c) for c in given_categories}
    for rendering in (Rendering.TEXT_PLAIN, Rendering.TEXT_OCCI):
        rendered = render_model(given_categories, rendering, MODEL)
        in_this = parse(rendering, rendered.headers, rendered.body, MODEL).definitions
        assert in_this == tuple(in_text(category) for category in given_categories)


@pytest.mark.parametrize("rendering", Rendering)
@given(paths=st.lists(uris.map("/{}".format).filter(lambda path: "," not in path), max_size=5))
def test_locations_are_read_as_they_were_rendered(rendering: Rendering, paths: list[str]) -> None:
    rendered = render_locations(paths, rendering, "https://example.com:8443")
    draft = parse(rendering, rendered.headers, rendered.body, MODEL)
    assert draft.locations == tuple(f"https://example.com:8443{path}" for path in paths)


def test_the_whole_model_is_read_as_it_was_rendered() -> None:
    for rendering in FULL:
        rendered = render_model(MODEL.ordered, rendering)
        read = parse(rendering, rendered.headers, rendered.body, MODEL).definitions
        if rendering is Rendering.JSON:
            assert read == tuple(map(in_json, MODEL.ordered))
        else:
            assert read == tuple(map(in_text, MODEL.ordered))
