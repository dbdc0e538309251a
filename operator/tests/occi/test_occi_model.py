# SPDX-License-Identifier: Apache-2.0
"""The model, the standard's categories, and values of attributes."""

from __future__ import annotations

import re

import pytest
from occi_objects import BEAM, INTERFACE, LARGE, MINE, MODEL, SMALL

from simyard.occi.errors import MAX_MESSAGE_CHARACTERS, OcciError, quote_input
from simyard.occi.model import ENTITY, LINK, RESOURCE, AttributeSpec, Kind, Mixin, Model, ValueType, strip_base
from simyard.occi.standard import AMQPLINK, COMPUTE, OS_TPL, STANDARD
from simyard.occi.values import check_bounds, check_value


def test_categories_are_found_by_id_and_location() -> None:
    assert MODEL.find_category(COMPUTE) is MODEL.find_kind(COMPUTE) is MODEL.find_by_location("/compute/")
    assert MODEL.find_mixin(BEAM.id) is BEAM is MODEL.find_by_location("/os_tpl/beam/")
    assert (
        MODEL.find_mixin(COMPUTE)
        is MODEL.find_kind(BEAM.id)
        is MODEL.find_action(COMPUTE)
        is MODEL.find_by_location("/nowhere/")
        is None
    )


def test_the_first_of_two_with_one_id_or_location_counts() -> None:
    again, elsewhere = Mixin(BEAM.scheme, BEAM.term, "Again"), Mixin("http://x#", "y", "", BEAM.location)
    model = Model((BEAM, again, elsewhere))
    assert (model.mixins, model.find_by_location(BEAM.location)) == ((BEAM, elsewhere), BEAM)


def test_ancestors_come_first_whatever_the_order() -> None:
    model = Model(reversed(STANDARD))
    assert [kind.id for kind in model.kinds[:3]] == [ENTITY, RESOURCE, LINK]
    assert set(model.ordered) == set(MODEL.ordered) - {INTERFACE, BEAM, SMALL, LARGE, MINE, *MODEL.actions[-2:]}
    for place, kind in enumerate(model.kinds):
        assert not kind.parent or kind.parent in {earlier.id for earlier in model.kinds[:place]}


def test_a_circle_of_ancestors_ends() -> None:
    one, two = Mixin("http://x#", "a", depends=("http://x#b",)), Mixin("http://x#", "b", depends=("http://x#a",))
    assert Model((one, two)).list_lineage(one.id) == (one.id, two.id)


def test_a_descendant_and_a_template_override_what_is_declared() -> None:
    assert MODEL.list_lineage(BEAM.id) == (BEAM.id, OS_TPL)
    assert MODEL.list_lineage(COMPUTE) == (COMPUTE, RESOURCE, ENTITY)
    assert MODEL.collect_specs((SMALL.id, COMPUTE))["occi.compute.cores"].default == 1
    assert MODEL.collect_specs((COMPUTE,))["occi.compute.cores"].default is None
    assert "occi.core.title" in MODEL.collect_specs((COMPUTE,))


def test_a_users_mixin_overrides_nothing() -> None:
    mine = Mixin("http://me#", "me", attributes=(AttributeSpec("occi.compute.state"),), user=True)
    model = Model((*STANDARD, mine))
    assert not model.collect_specs((mine.id, COMPUTE))["occi.compute.state"].mutable


def test_the_standard_keeps_to_the_contract() -> None:
    required = {spec.name for kind in MODEL.kinds for spec in kind.attributes if spec.required}
    assert required == {
        "occi.storage.size",
        "occi.storagelink.deviceid",
        "occi.core.source",
        "occi.core.target",
        "occi.amqplink.queue",
    }
    assert all(re.fullmatch("[a-z0-9_-]+", category.term) for category in MODEL.ordered)
    assert not any(set(",;=").intersection(category.title) for category in MODEL.ordered)
    assert all(kind.location == f"/{kind.term}/" for kind in MODEL.kinds)
    locations = [category.location for category in (*MODEL.kinds, *MODEL.mixins)]
    assert all(locations)
    assert len(locations) == len(set(locations))
    assert {action for kind in MODEL.kinds for action in kind.actions} <= {action.id for action in MODEL.actions}
    assert all(MODEL.find_kind(kind) for mixin in MODEL.mixins for kind in mixin.applies)
    assert AMQPLINK == "http://schemas.ogf.org/occi/infrastructure#amqplink"
    assert all(isinstance(MODEL.find_category(kind.parent), Kind) for kind in MODEL.kinds if kind.parent)


def test_uris_below_a_base_are_paths() -> None:
    base = "https://h:1"
    assert strip_base("https://h:1/compute/1", base) == strip_base("/compute/1", base) == "/compute/1"
    assert strip_base("https://h:1/compute/1", "http://other", f"{base}/") == "/compute/1"
    assert strip_base("https://h:11/compute/1", base) == "https://h:11/compute/1"
    assert strip_base("urn:x:y", base) == "urn:x:y"


def test_errors_are_one_short_printable_line() -> None:
    error = OcciError(400, "a\r\nb\x1b[31m\u2028" + "c" * 5000)
    assert error.message.startswith("a b?[31m")
    assert len(error.message) <= MAX_MESSAGE_CHARACTERS
    assert quote_input("x" * 500 + "\n") == '"' + "x" * 80 + '..."'


@pytest.mark.parametrize(
    ("value", "wanted", "found"),
    [
        ("2", ValueType.NUMBER, 2),
        ("-2.5e1", ValueType.NUMBER, -25.0),
        (2, ValueType.STRING, "2"),
        (True, ValueType.STRING, "true"),
        ("false", ValueType.BOOLEAN, False),
        ("[1]", ValueType.ARRAY, [1]),
        ('{"a": 1}', ValueType.OBJECT, {"a": 1}),
    ],
)
def test_a_value_is_converted_where_nothing_is_lost(value: object, wanted: ValueType, found: object) -> None:
    assert check_value(value, AttributeSpec("a", wanted)) == found  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "spec", "said"),
    [
        ("two", AttributeSpec("a", ValueType.NUMBER), 'attribute a: "two" is not of the type number'),
        (True, AttributeSpec("a", ValueType.NUMBER), "is not of the type number"),
        (float("nan"), AttributeSpec("a", ValueType.NUMBER), "is not of the type number"),
        ("yes", AttributeSpec("a", ValueType.BOOLEAN), "is not of the type boolean"),
        ("[1", AttributeSpec("a", ValueType.ARRAY), "is not of the type array"),
        ("[1]", AttributeSpec("a", ValueType.OBJECT), "is not of the type object"),
        ([1], AttributeSpec("a"), '"[1]" is not of the type string'),
        ("B", AttributeSpec("a", pattern="[a-z]"), 'attribute a: "B" does not match the pattern "[a-z]"'),
        ("bb", AttributeSpec("a", pattern="[a-z]"), "does not match"),
        (1.5, AttributeSpec("a", ValueType.NUMBER, pattern="[0-9]+"), '"1.5" does not match'),
        ("b", AttributeSpec("a", pattern="("), "is no regular expression"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(value: object, spec: AttributeSpec, said: str) -> None:
    with pytest.raises(OcciError) as caught:
        check_value(value, spec)  # type: ignore[arg-type]
    assert caught.value.status == 400
    assert said in caught.value.message


def test_integers_have_64_bits_and_nesting_ends() -> None:
    check_bounds({"a": [2**63 - 1, -(2**63), None, True, 1.5]}, "x")
    deep: list[object] = []
    for _ in range(40):
        deep = [deep]
    for value in (2**63, {"a": [2**64]}, deep):
        with pytest.raises(OcciError):
            check_bounds(value, "x")  # type: ignore[arg-type]
