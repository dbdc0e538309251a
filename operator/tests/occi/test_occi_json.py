# SPDX-License-Identifier: Apache-2.0
"""The JSON rendering: the flat form of OCCI 1.2, and the older nested form (section 5)."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from occi_json_schema import validator
from occi_objects import INTERFACE, MODEL, SOLVE, START, entities, make_amqplink, make_compute

from simyard.occi.errors import OcciError
from simyard.occi.model import Action, AttributeSpec, Draft, DraftLink, Entity, Mixin, Resource, ValueType
from simyard.occi.negotiation import Rendering
from simyard.occi.parsing import parse
from simyard.occi.rendering import render_entity, render_model
from simyard.occi.standard import AMQPLINK, COMPUTE, NETWORK, NETWORKINTERFACE
from simyard.occi.values import check_value

validate_entity = {name: validator(name) for name in ("resource", "link")}


def read(document: object) -> Draft:
    return parse(Rendering.JSON, (), orjson.dumps(document), MODEL)


def test_a_resource_is_rendered_as_the_schema_says() -> None:
    compute = make_compute(
        title="A", summary="S", mixins=(INTERFACE.id,), actions=(START,), links=(make_amqplink(actions=(SOLVE.id,)),)
    )
    assert orjson.loads(render_entity(compute, Rendering.JSON, "", MODEL).body) == {
        "kind": COMPUTE,
        "id": "c1",
        "title": "A",
        "summary": "S",
        "mixins": [INTERFACE.id],
        "attributes": {"occi.compute.cores": 2, "occi.compute.hostname": "web1", "occi.compute.state": "active"},
        "actions": [START],
        "links": [
            {
                "kind": AMQPLINK,
                "id": "l1",
                "source": {"location": "/compute/c1", "kind": COMPUTE},
                "target": {"location": "/application/a1"},
                "attributes": {"occi.amqplink.queue": "q.1"},
                "actions": [SOLVE.id],
            }
        ],
    }


def test_categories_are_rendered_as_the_schema_says() -> None:
    model = orjson.loads(render_model([INTERFACE, SOLVE], Rendering.JSON).body)
    assert "kinds" not in model
    (mixin,) = model["mixins"]
    assert (mixin["term"], mixin["location"]) == ("interface", "/service/beam/")
    assert mixin["applies"] == [COMPUTE, AMQPLINK]
    assert mixin["attributes"]["cloud4e.material"] == {
        "mutable": True,
        "required": False,
        "type": "string",
    }
    assert model["actions"][0]["attributes"]["cloud4e.steps"]["default"] == 10


def test_the_model_is_valid_by_the_schema_of_the_ogf() -> None:
    validator("model")(orjson.loads(render_model(MODEL.ordered, Rendering.JSON).body))


@given(entity=entities)
def test_every_entity_is_valid_by_the_schema_of_the_ogf(entity: Entity) -> None:
    document = orjson.loads(render_entity(entity, Rendering.JSON, "", MODEL).body)
    validate_entity["resource" if isinstance(entity, Resource) else "link"](document)


@pytest.mark.parametrize("title", [["a"], [], None])
def test_a_title_that_is_no_text_is_refused(title: object) -> None:
    with pytest.raises(OcciError) as caught:
        read({"kind": COMPUTE, "attributes": {"occi.core.title": title}})
    assert caught.value.status == 400


def test_the_pattern_of_an_attribute_may_be_the_json_schema_of_the_standard() -> None:
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "string"}
    described = {"type": "string", "pattern": {**schema, "pattern": "b"}}
    mixin = {"term": "t", "scheme": "http://x#", "attributes": {"a": described, "c": {**described, "pattern": schema}}}
    (found,) = read({"mixins": [mixin]}).definitions
    spec, free = found.attributes
    assert (spec.name, free.name, free.pattern) == ("a", "c", "")
    assert check_value("abc", spec) == "abc"
    with pytest.raises(OcciError):
        check_value("ac", spec)


def test_attributes_are_flat_or_nested() -> None:
    flat = read({"kind": COMPUTE, "attributes": {"occi.compute.cores": 2, "occi.compute.hostname": "a"}})
    nested = read({"kind": COMPUTE, "attributes": {"occi": {"compute": {"cores": 2, "hostname": "a"}}}})
    assert flat == nested
    assert flat.attributes == {"occi.compute.cores": 2, "occi.compute.hostname": "a"}


def test_an_object_is_a_value_where_one_is_declared() -> None:
    mesh = {"size": {"x": 1}}
    for attributes in ({"cloud4e.mesh": mesh}, {"cloud4e": {"mesh": mesh}}):
        assert read({"attributes": attributes}).attributes == {"cloud4e.mesh": mesh}


def test_core_attributes_may_stand_in_either_place() -> None:
    fields = read({"kind": COMPUTE, "id": "x", "title": "T", "summary": "S"})
    names = {"occi.core.id": "x", "occi.core.title": "T", "occi.core.summary": "S"}
    assert fields.attributes == read({"kind": COMPUTE, "attributes": names}).attributes == names


def test_a_link_has_ends_with_kinds() -> None:
    draft = read(
        {
            "kind": NETWORKINTERFACE,
            "source": {"location": "/compute/1", "kind": COMPUTE},
            "target": {"location": "/network/1", "kind": NETWORK},
        }
    )
    assert draft.attributes == {
        "occi.core.source": "/compute/1",
        "occi.core.source.kind": COMPUTE,
        "occi.core.target": "/network/1",
        "occi.core.target.kind": NETWORK,
    }
    old = read({"kind": NETWORKINTERFACE, "source": "/compute/1", "target": "/network/1", "rel": NETWORK})
    assert old.attributes["occi.core.target.kind"] == NETWORK


def test_links_stand_inside_a_resource() -> None:
    link = {"kind": NETWORKINTERFACE, "target": {"location": "/network/1", "kind": NETWORK}, "id": "n"}
    draft = read({"kind": COMPUTE, "links": [link, "/networkinterface/old"]})
    assert draft.links == (
        DraftLink("/network/1", (NETWORK,), "", NETWORKINTERFACE, (), {"occi.core.id": "n"}),
        DraftLink(path="/networkinterface/old"),
    )


def test_a_batch_has_members_and_one_member_is_no_batch() -> None:
    one, two = {"kind": COMPUTE, "id": "1"}, {"kind": COMPUTE, "id": "2"}
    batch = read({"resources": [one], "links": [two]})
    assert [member.attributes["occi.core.id"] for member in batch.each] == ["1", "2"]
    assert read({"resources": [one]}) == read(one)
    assert read({"resources": [one]}).each == (read(one),)


def test_locations_are_an_array_of_strings() -> None:
    assert read(["/compute/1", "http://h/compute/2"]).locations == ("/compute/1", "http://h/compute/2")
    assert read({"resources": [{"location": "/compute/1"}, {"location": "/c/2"}]}).each[1].locations == ("/c/2",)


@pytest.mark.parametrize(
    "document",
    [
        {"action": SOLVE.id, "attributes": {"cloud4e.load": 3}},
        {"action": {"scheme": SOLVE.scheme, "term": SOLVE.term}, "attributes": {"cloud4e": {"load": 3}}},
        {"actions": [{"action": SOLVE.id, "attributes": {"cloud4e.load": "3"}}]},
        {"actions": [{"scheme": SOLVE.scheme, "term": SOLVE.term, "attributes": {"cloud4e": {"load": 3}}}]},
    ],
)
def test_an_invocation_has_an_action_and_parameters(document: object) -> None:
    draft = read(document)
    assert draft.action == SOLVE.id
    assert {name: float(str(value)) for name, value in draft.attributes.items()} == {"cloud4e.load": 3.0}


def test_definitions_are_read_in_both_forms() -> None:
    flat = {
        "mixins": [
            {
                "term": "beam",
                "scheme": "http://cloud4e/beam#",
                "location": "/beam/",
                "depends": ["http://x/y#z"],
                "attributes": {
                    "cloud4e.n": {"type": "number", "required": True, "default": 3, "pattern": "[0-9]+"},
                    "cloud4e.n.message": {"mutable": False},
                },
                "actions": ["http://cloud4e/beam/action#solve"],
            }
        ],
        "actions": [{"term": "solve", "scheme": "http://cloud4e/beam/action#", "attributes": {"m": {}}}],
    }
    nested = {
        "mixins": [
            {
                "term": "beam",
                "scheme": "http://cloud4e/beam#",
                "location": "/beam/",
                "related": [{"scheme": "http://x/y#", "term": "z"}],
                "attributes": {
                    "cloud4e": {
                        "n": {
                            "Type": "number",
                            "Required": True,
                            "Default": 3,
                            "Pattern": "[0-9]+",
                            "message": {"Mutable": False},
                        }
                    }
                },
                "actions": [{"scheme": "http://cloud4e/beam/action#", "term": "solve"}],
            }
        ],
        "actions": [{"term": "solve", "scheme": "http://cloud4e/beam/action#", "attributes": {"m": None}}],
    }
    expected = (
        Mixin(
            "http://cloud4e/beam#",
            "beam",
            "",
            "/beam/",
            ("http://x/y#z",),
            (),
            (
                AttributeSpec("cloud4e.n", ValueType.NUMBER, required=True, default=3, pattern="[0-9]+"),
                AttributeSpec("cloud4e.n.message", mutable=False),
            ),
            ("http://cloud4e/beam/action#solve",),
        ),
        Action("http://cloud4e/beam/action#", "solve", "", (AttributeSpec("m"),)),
    )
    assert read(flat).definitions == read(nested).definitions == expected
    assert read(flat).attributes == {}


def test_a_name_such_as_type_is_no_description() -> None:
    (mixin,) = read(
        {"mixins": [{"term": "a", "scheme": "http://x#", "attributes": {"b": {"type": {"Type": "number"}}}}]}
    ).definitions
    assert mixin.attributes == (AttributeSpec("b.type", ValueType.NUMBER),)


def test_an_empty_body_is_an_empty_draft() -> None:
    assert parse(Rendering.JSON, (), b" \n", MODEL) == Draft() == read({})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "the body is not JSON"),
        (b'{"a":\xff}', "the body is not JSON"),
        (b"3", "neither a JSON object nor an array"),
        (b'{"kind": "a#b", "id": "1", "kind": "a#c"}', 'the body has "kind" twice in one object'),
        (b'{"kind": "a#b", "attributes": {"a": [{"b": 1, "b": 1}]}}', 'the body has "b" twice in one object'),
        (b'{"attributes": {"a": ' + b"[" * 1010 + b"]" * 1010 + b"}}", "is nested deeper than 32 levels"),
        (b'{"kind": 3}', "kind: must be a string"),
        (b'{"kind": "a b"}', 'kind: "a b" is no URI'),
        (b'{"kind": {"term": "x"}}', "kind.scheme: must be a string"),
        (b'{"kind": "a#b", "attribute": {}}', '"attribute" is unknown; known are'),
        (b'{"resources": [{"kinds": []}]}', 'resources[0]."kinds" is unknown'),
        (b'{"resources": [3]}', "resources[0]: must be an object"),
        (b'{"resources": {}}', "resources: must be an array"),
        (b'{"kind": "a#b", "mixins": [3]}', "mixins[0]: must be a string"),
        (b'{"kind": "a#b", "attributes": []}', "attributes: must be an object"),
        (b'{"attributes": {"a": null}}', '"a" is null; leave out what has no value'),
        (b'{"attributes": {"a b": 1}}', '"a b" is no name of an attribute'),
        (b'{"attributes": {"a": 18446744073709551615}}', "does not fit 64 bits"),
        (b'{"attributes": {"a": [[18446744073709551615]]}}', "does not fit 64 bits"),
        (b'{"attributes": {"a": {"b": 1}, "a.b": 2}}', "the attribute a.b is given twice"),
        (b'{"id": "x", "attributes": {"occi.core.id": "y"}}', "the attribute occi.core.id is given twice"),
        (b'{"attributes": ' + b'{"a":' * 60 + b"1" + b"}" * 61, "is nested deeper than 32 levels"),
        (b'{"attributes": {"a": ' + b"[" * 60 + b"]" * 60 + b"}}", "is nested deeper than 32 levels"),
        (b'{"attributes": {"' + b"a" * 300 + b'": {"b": 1}}}', "is too long for the name of an attribute"),
        (b'{"source": {"uri": "/x"}}', 'source."uri" is unknown'),
        (b'{"actions": [{"action": "a#b"}, {"action": "a#b"}]}', "invoke exactly one action"),
        (b'{"mixins": [{"term": "x"}]}', "is no category"),
        (b'{"mixins": [{"term": "x", "scheme": "http://x#", "title": 1}]}', "mixins[0].title: must be a string"),
        (
            b'{"mixins": [{"term": "x", "scheme": "http://x#", "attributes": {"a": {"type": "int"}}}]}',
            "the type is none of string, number",
        ),
        (
            b'{"mixins": [{"term": "x", "scheme": "http://x#", "attributes": {"a": {"mutable": "no"}}}]}',
            "mutable and required must be true or false",
        ),
        (b'{"mixins": [{"term": "x", "scheme": "http://x#", "depends": [3]}]}', "depends: must be ids"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(body: bytes, said: str) -> None:
    with pytest.raises(OcciError) as caught:
        parse(Rendering.JSON, (), body, MODEL)
    assert caught.value.status == 400
    assert said in caught.value.message


def test_the_number_of_categories_is_bounded() -> None:
    mixins = [{"term": f"t{n}", "scheme": "http://x#"} for n in range(1001)]
    for document in ({"mixins": mixins}, {"kind": COMPUTE, "mixins": [f"http://x#t{n}" for n in range(1001)]}):
        with pytest.raises(OcciError) as caught:
            read(document)
        assert caught.value.status == 413
