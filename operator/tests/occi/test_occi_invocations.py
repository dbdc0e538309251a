# SPDX-License-Identifier: Apache-2.0
"""Parameters of actions in the body and in the query."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simyard.occi.errors import OcciError
from simyard.occi.invocations import check_invocation
from simyard.occi.model import Action, AttributeSpec, Draft, Model, Resource, Value, ValueType
from simyard.occi.standard import COMPUTE, STANDARD

SOLVE = Action(
    "http://cloud4e/beam/action#",
    "solve",
    attributes=(
        AttributeSpec("cloud4e.load", ValueType.NUMBER, default=100),
        AttributeSpec("cloud4e.name"),
        AttributeSpec("cloud4e.fine", ValueType.BOOLEAN, required=True),
    ),
)
MODEL = Model((*STANDARD, SOLVE))
COMPUTE_1 = Resource(COMPUTE, "1", "/compute/1", actions=(SOLVE.id,))
OPTIONAL = {
    "cloud4e.load": st.integers(-(10**6), 10**6),
    "cloud4e.name": st.text(st.characters(codec="ascii"), max_size=5),
}


def text_of(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@given(st.fixed_dictionaries({"cloud4e.fine": st.booleans()}, optional=OPTIONAL), st.data())
def test_a_parameter_counts_wherever_it_stands(values: dict[str, Value], data: st.DataObject) -> None:
    in_query = data.draw(st.sets(st.sampled_from(sorted(values))))
    in_body = data.draw(st.sets(st.sampled_from(sorted(values)))) | (values.keys() - in_query)
    draft = Draft(action=SOLVE.id, attributes={name: values[name] for name in in_body})
    query = {name: text_of(values[name]) for name in in_query}
    _, found = check_invocation(draft, "solve", COMPUTE_1, MODEL, query)
    assert found == {"cloud4e.load": 100, **values}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"cloud4e.load": "5"}, "cloud4e.load: the query and the body give it different values"),
        ({"load": "4"}, 'attribute "load": the action solve has none of that name; it has cloud4e.load'),
        ({"occi.core.title": "4"}, "occi.core.title"),
        ({"cloud4e.name": "a", "cloud4e.fine": "maybe"}, "cloud4e.fine"),
    ],
)
def test_a_query_that_contradicts_the_body_or_means_nothing_is_refused(query: dict[str, str], said: str) -> None:
    draft = Draft(action=SOLVE.id, attributes={"cloud4e.load": 4, "cloud4e.fine": True})
    with pytest.raises(OcciError, match=said) as refused:
        check_invocation(draft, "solve", COMPUTE_1, MODEL, query)
    assert refused.value.status == 400
    check_invocation(draft, "solve", COMPUTE_1, MODEL, {"cloud4e.load": "4.0"})


@pytest.mark.parametrize("names", [{"locations": ("/compute/1",)}, {"members": (Draft(), Draft())}, {"kind": COMPUTE}])
def test_an_action_on_a_collection_that_names_some_members_is_refused(names: dict[str, object]) -> None:
    draft = dataclasses.replace(Draft(action=SOLVE.id, attributes={"cloud4e.fine": True}), **names)
    with pytest.raises(OcciError, match="the path alone selects the entities") as refused:
        check_invocation(draft, "solve", [COMPUTE_1], MODEL)
    assert refused.value.status == 400
