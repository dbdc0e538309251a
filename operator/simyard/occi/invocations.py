# SPDX-License-Identifier: Apache-2.0
"""Checks invocations of actions and their parameters (GFD.185 section 3.4.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from simyard.occi.applicability import find_spec, match_declarations, refuse_missing
from simyard.occi.errors import OcciError, quote_input
from simyard.occi.model import Action, Draft, Entity, Link, Model, Resource, Value
from simyard.occi.values import check_value

_NONE: Mapping[str, str] = MappingProxyType({})


def check_invocation(
    draft: Draft,
    term: str,
    entities: Entity | Sequence[Entity],
    model: Model,
    query: Mapping[str, str] = _NONE,
) -> tuple[Action, Mapping[str, Value]]:
    """Return the action of ``?action=term`` on an entity or on every member of a collection, and its parameters.

    The body and the ``query`` may contain parameters (Cloud4E's clients name the action in the body, and its parameters
    in the query). A parameter that is missing in both gets its default.

    Raises:
        OcciError: 400: there is no Category or the wrong one; the action is unknown or does not apply now; a parameter
            is unknown, does not fit, or has different values in body and query; or the body names entities.
    """
    if not draft.action:
        count = sum(isinstance(category, Action) for category in draft.definitions) or "none"
        raise OcciError(400, f"?action={quote_input(term)}: send exactly one Category with class=action, not {count}")
    is_collection = not isinstance(entities, (Resource, Link))
    if draft.locations or draft.members or draft.links or (is_collection and (draft.kind or draft.mixins)):
        raise OcciError(
            400,
            f"?action={quote_input(term)}: the path alone selects the entities; send the action to the entity's path, "
            "without entities in the body",
        )
    action = model.find_action(draft.action)
    if action is None:
        raise OcciError(400, f"Category: the action {quote_input(draft.action)} is unknown; see /-/")
    if action.term != term:
        raise OcciError(400, f"?action={quote_input(term)}: the Category names another action, {action.term}")
    for entity in _members(entities):
        if action.id not in entity.actions:
            able = ", ".join(name.rpartition("#")[2] for name in entity.actions) or "none"
            raise OcciError(400, f"{entity.path}: the action {action.term} does not apply now; these do: {able}")
    specs = {spec.name: spec for spec in action.attributes}
    what = f"the action {action.term}"
    values = {spec.name: check_value(value, spec) for spec, value in match_declarations(draft.attributes, specs, what)}
    for name, text in query.items():
        value = check_value(text, find_spec(name, specs, what))
        if values.setdefault(name, value) != value:
            raise OcciError(400, f"attribute {name}: the query and the body give it different values; send one of them")
    for spec in action.attributes:
        if spec.default is not None:
            values.setdefault(spec.name, spec.default)
    refuse_missing(action.attributes, values.keys(), what)
    return action, values


def find_action(term: str, entities: Entity | Sequence[Entity], model: Model) -> Action:
    """Return the applicable action with a term, for requests without a Category (query form of the Cloud4E binding).

    Raises:
        OcciError: 400, no action applies, or more than one.
    """
    members = _members(entities)
    named = dict.fromkeys(name for entity in members for name in entity.actions if name.rpartition("#")[2] == term)
    applicable = [name for name in named if all(name in entity.actions for entity in members)]
    found = [action for action in map(model.find_action, applicable) if action is not None]
    if len(found) != 1:
        problem = "several actions have that term; send the Category" if found else "no such action applies now"
        raise OcciError(400, f"?action={quote_input(term)}: {problem}")
    return found[0]


def _members(entities: Entity | Sequence[Entity]) -> Sequence[Entity]:
    return (entities,) if isinstance(entities, (Resource, Link)) else entities
