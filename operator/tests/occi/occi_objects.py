# SPDX-License-Identifier: Apache-2.0
"""A model with a service, entities of all kinds, and the drafts that their renderings must yield."""

from __future__ import annotations

import string
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from simyard.occi.model import (
    ID,
    RESOURCE,
    SOURCE,
    SOURCE_KIND,
    SUMMARY,
    TARGET,
    TARGET_KIND,
    TITLE,
    Action,
    AttributeSpec,
    Category,
    Draft,
    DraftLink,
    Entity,
    Kind,
    Link,
    Mixin,
    Model,
    Resource,
    Value,
    ValueType,
)
from simyard.occi.negotiation import Rendering
from simyard.occi.standard import AMQPLINK, COMPUTE, OS_TPL, RESOURCE_TPL, STANDARD

SOLVE = Action(
    "http://cloud4e/beam/action#",
    "solve",
    "Solve",
    (
        AttributeSpec("cloud4e.load", ValueType.NUMBER, required=True),
        AttributeSpec("cloud4e.steps", ValueType.NUMBER, default=10),
        AttributeSpec("cloud4e.exact", ValueType.BOOLEAN),
    ),
)
CANCEL = Action("http://cloud4e/beam/action#", "cancel", "Cancel")
INTERFACE = Mixin(
    "http://simyard.dev/occi/service/beam#",
    "interface",
    "Beam",
    "/service/beam/",
    applies=(COMPUTE, AMQPLINK),
    attributes=(
        AttributeSpec("cloud4e.progress", ValueType.NUMBER, mutable=False),
        AttributeSpec("cloud4e.material", pattern="[a-z]+"),
        AttributeSpec("cloud4e.fast", ValueType.BOOLEAN),
        AttributeSpec("cloud4e.nodes", ValueType.ARRAY),
        AttributeSpec("cloud4e.mesh", ValueType.OBJECT),
    ),
    actions=(SOLVE.id, CANCEL.id),
)
BEAM = Mixin("http://simyard.dev/occi/os_tpl#", "beam", "Beam", "/os_tpl/beam/", depends=(OS_TPL,))
SMALL = Mixin(
    "http://simyard.dev/occi/resource_tpl#",
    "small",
    "Small",
    "/resource_tpl/small/",
    depends=(RESOURCE_TPL,),
    attributes=(
        AttributeSpec("occi.compute.cores", ValueType.NUMBER, default=1),
        AttributeSpec("occi.compute.memory", ValueType.NUMBER, default=1),
    ),
)
LARGE = replace(
    SMALL,
    term="large",
    title="Large",
    location="/resource_tpl/large/",
    attributes=(
        AttributeSpec("occi.compute.cores", ValueType.NUMBER, default=4),
        AttributeSpec("occi.compute.memory", ValueType.NUMBER, default=8),
    ),
)
MINE = Mixin("http://example.com/mine#", "tag", "Mine", "/tag/", user=True)
MODEL = Model((*STANDARD, INTERFACE, SOLVE, CANCEL, BEAM, SMALL, LARGE, MINE), version=7)

START = "http://schemas.ogf.org/occi/infrastructure/compute/action#start"
STOP = "http://schemas.ogf.org/occi/infrastructure/compute/action#stop"


def make_compute(**fields: Any) -> Resource:
    """Return an active compute with two cores."""
    attributes = {"occi.compute.cores": 2, "occi.compute.hostname": "web1", "occi.compute.state": "active"}
    return Resource(**{"kind": COMPUTE, "id": "c1", "path": "/compute/c1", "attributes": attributes, **fields})


def make_amqplink(**fields: Any) -> Link:
    """Return the link from that compute to the queue of its service."""
    known = {"kind": AMQPLINK, "id": "l1", "path": "/amqplink/l1", "source": "/compute/c1", "target": "/application/a1"}
    return Link(**{**known, "attributes": {"occi.amqplink.queue": "q.1"}, **fields})


def draft_of(entity: Entity, rendering: Rendering) -> Draft:
    """Return the draft that a rendering of an entity must yield, without Category lines (``definitions``)."""
    attributes: dict[str, Value] = {ID: entity.id, **_titled(entity), **entity.attributes}
    links: tuple[DraftLink, ...] = ()
    if isinstance(entity, Resource):
        if entity.summary:
            attributes[SUMMARY] = entity.summary
        links = tuple(_draft_link(link, rendering) for link in entity.links)
    else:
        attributes |= {SOURCE: entity.source, TARGET: entity.target}
        if entity.source_kind:
            attributes[SOURCE_KIND] = entity.source_kind
        if entity.target_kind:
            attributes[TARGET_KIND] = entity.target_kind[0]
    return Draft(entity.kind, entity.mixins, attributes, links, actions=entity.actions)


def _titled(entity: Entity) -> dict[str, Value]:
    return {TITLE: entity.title} if entity.title else {}


def _draft_link(link: Link, rendering: Rendering) -> DraftLink:
    """Return the draft of a link: JSON omits its path and its target's mixins, and text always has a target kind."""
    is_json = rendering is Rendering.JSON
    target_kind = link.target_kind[:1] if is_json else link.target_kind or (RESOURCE,)
    attributes = {ID: link.id, **_titled(link), **link.attributes}
    return DraftLink(link.target, target_kind, "" if is_json else link.path, link.kind, link.mixins, attributes)


def in_json(category: Category) -> Category:
    """Return a category with only the parts that JSON keeps."""
    attributes = tuple(replace(spec, pattern="") for spec in category.attributes)
    if isinstance(category, Mixin):
        return replace(category, attributes=attributes, user=False)
    return replace(category, attributes=attributes)


def in_text(category: Category) -> Category:
    """Return a category with only the parts that text keeps."""
    attributes = tuple(
        AttributeSpec(spec.name, mutable=spec.mutable, required=spec.required) for spec in category.attributes
    )
    if isinstance(category, Mixin):
        depends = tuple(name for name in category.depends[:1] if MODEL.find_category(name) is not None)
        return replace(category, attributes=attributes, depends=depends, applies=(), user=False)
    return replace(category, attributes=attributes)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
_words = st.text(string.ascii_letters + string.digits + "_-.", min_size=1, max_size=12).filter(
    lambda w: w[0] not in ".-"
)
_uri_characters = "".join(chr(c) for c in range(33, 127) if chr(c) not in '"<>\\^`{|}')
uris = st.one_of(
    st.text(_uri_characters, min_size=1, max_size=30).filter(lambda uri: "?action=" not in uri),
    st.sampled_from(["/network/1", "https://example.com/a,b;c=d?e#f", "urn:x:y", "amqp:queue"]),
)
integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.one_of(texts, integers, floats, st.booleans())
nested = st.recursive(
    st.one_of(scalars, st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
VALUES: dict[ValueType, st.SearchStrategy[Value]] = {
    ValueType.STRING: texts,
    ValueType.NUMBER: st.one_of(integers, floats),
    ValueType.BOOLEAN: st.booleans(),
    ValueType.ARRAY: st.lists(nested, max_size=3),
    ValueType.OBJECT: st.dictionaries(texts, nested, max_size=3),
}


@st.composite
def attributes_of(draw: st.DrawFn, category_ids: tuple[str, ...]) -> dict[str, Value]:
    """Generate values of the declared types, and values of undeclared names."""
    specs = [spec for name, spec in MODEL.collect_specs(category_ids).items() if not name.startswith("occi.core.")]
    chosen = draw(st.lists(st.sampled_from(specs), unique=True, max_size=4)) if specs else []
    found = {spec.name: draw(VALUES[spec.type]) for spec in chosen}
    names = draw(st.lists(_words.map("com.example.{}".format), unique=True, max_size=2))
    return found | {name: draw(scalars) for name in names}


_mixins = st.lists(st.sampled_from([mixin.id for mixin in MODEL.mixins]), unique=True, max_size=3).map(tuple)
_actions = st.lists(st.sampled_from([action.id for action in MODEL.actions]), unique=True, max_size=3).map(tuple)
_kinds = st.sampled_from([kind.id for kind in MODEL.kinds])
_link_kinds = [
    kind.id for kind in MODEL.kinds if "http://schemas.ogf.org/occi/core#link" in MODEL.list_lineage(kind.id)
]


@st.composite
def links(draw: st.DrawFn) -> Link:
    """Generate a link of any kind to any target."""
    kind, mixins = draw(st.sampled_from(_link_kinds)), draw(_mixins)
    return Link(
        kind,
        draw(texts.filter(bool)),
        f"/link/{draw(_words)}",
        f"/compute/{draw(_words)}",
        draw(uris),
        mixins,
        draw(attributes_of((*mixins, kind))),
        draw(_actions),
        draw(texts),
        draw(st.lists(_kinds, unique=True, max_size=2).map(tuple)),
        draw(st.one_of(st.just(""), _kinds)),
    )


@st.composite
def resources(draw: st.DrawFn) -> Resource:
    """Generate a resource of any kind, with links."""
    kind, mixins = draw(_kinds), draw(_mixins)
    return Resource(
        kind,
        draw(texts.filter(bool)),
        f"/compute/{draw(_words)}",
        mixins,
        draw(attributes_of((*mixins, kind))),
        draw(_actions),
        draw(st.lists(links(), max_size=2).map(tuple)),
        draw(texts),
        draw(texts),
    )


entities = st.one_of(resources(), links())

_schemes = _words.map("http://example.com/{}#".format)
_locations = st.one_of(st.just(""), _words.map("/{}/".format))
_ids = st.lists(st.builds(str.__add__, _schemes, _words), unique=True, max_size=3).map(tuple)


@st.composite
def specs(draw: st.DrawFn) -> tuple[AttributeSpec, ...]:
    """Generate declarations with unique names."""
    names = draw(st.lists(_words, unique=True, max_size=3))
    return tuple(
        AttributeSpec(
            name,
            draw(st.sampled_from(ValueType)),
            draw(st.booleans()),
            draw(st.booleans()),
            draw(st.one_of(st.none(), nested)),
            draw(texts),
            draw(texts),
        )
        for name in names
    )


categories = st.one_of(
    st.builds(Action, _schemes, _words, texts, specs()),
    st.builds(Kind, _schemes, _words, texts, _locations, st.one_of(st.just(""), _kinds), specs(), _ids),
    st.builds(
        Mixin, _schemes, _words, texts, _locations, _mixins, st.lists(_kinds, unique=True).map(tuple), specs(), _ids
    ),
)
