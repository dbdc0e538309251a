# SPDX-License-Identifier: Apache-2.0
"""Checks the user mixins that clients add and remove on the query interface."""

from __future__ import annotations

import dataclasses

import re2

from simyard.occi.conflicts import ConflictCause, OcciConflictError
from simyard.occi.errors import OcciError, quote_input
from simyard.occi.model import Action, Draft, Kind, Mixin, Model
from simyard.occi.values import MAX_PATTERN_CHARACTERS, check_value, compile_pattern

RESERVED_LOCATIONS = ("/", "/-/", "/.well-known/")
STANDARD_SCHEMES = "http://schemas.ogf.org/occi/"
STANDARD_ATTRIBUTES = "occi."
PROVIDER_SCHEMES = "http://simyard.dev/occi/"


def check_definitions(draft: Draft, model: Model) -> tuple[Mixin | Action, ...]:
    """Return the checked user mixins (``user`` is set) and actions that a client POSTs to ``/-/``.

    ``depends`` of a checked mixin has only mixins that are known or in the request; the function drops any other
    ``rel``.

    Raises:
        OcciError: 400; 403 for a category of the provider; 409 for a location in use.
    """
    if draft.members:
        raise OcciError(400, "/-/ takes mixins and their actions, not entities")
    wanted = {category.id: category for category in draft.definitions}
    if len(wanted) < len(draft.definitions):
        raise OcciError(400, "Category: one category is defined twice")
    if not any(isinstance(category, Mixin) for category in wanted.values()):
        raise OcciError(400, "Category: no mixin is defined; send term, scheme, class=mixin and location")
    used = {action for category in wanted.values() if isinstance(category, Mixin) for action in category.actions}
    locations: set[str] = set()
    checked: list[Mixin | Action] = []
    for category in wanted.values():
        if isinstance(category, Kind):
            raise OcciError(403, f"Category: {category.id} is a kind; clients define mixins only")
        _check_names(category)
        known = model.find_category(category.id)
        if isinstance(category, Mixin):
            if known is not None and not (isinstance(known, Mixin) and known.user):
                raise OcciError(403, f"Category: {category.id} is the provider's")
            _check_location(category, model, locations)
            depends = tuple(name for name in category.depends if _is_mixin(name, wanted, model) and name != category.id)
            checked.append(dataclasses.replace(category, depends=depends, user=True))
            continue
        if category.id not in used:
            raise OcciError(400, f"Category: no mixin of this request has the action {category.id} in its actions")
        if known is not None and not is_users_action(category.id, model):
            raise OcciError(403, f"Category: {category.id} is the provider's")
        checked.append(category)
    for action in sorted(used):
        if action in wanted:
            continue
        if model.find_action(action) is None:
            raise OcciError(
                400, f"Category: the action {quote_input(action)} is unknown; define it in the same request"
            )
        if not is_users_action(action, model):
            raise OcciError(403, f"Category: the action {action} is the provider's; define one of your own")
    return tuple(checked)


def check_removals(draft: Draft, model: Model) -> tuple[str, ...]:
    """Return the ids of the user mixins that a client DELETEs on ``/-/``, and of actions that no other mixin has.

    Raises:
        OcciError: 400; 403 for a category of the provider; 404 for an unknown mixin.
    """
    named = dict.fromkeys((*(category.id for category in draft.definitions), *draft.mixins))
    if not named:
        raise OcciError(400, "Category: no mixin is named; send its term, scheme and class=mixin")
    actions: list[str] = []
    for category_id in named:
        known = model.find_category(category_id)
        if known is None:
            raise OcciError(404, f"Category: {quote_input(category_id)} is unknown")
        if isinstance(known, Action) and is_users_action(category_id, model):
            continue  # the action is deleted with its mixin
        if not (isinstance(known, Mixin) and known.user):
            raise OcciError(403, f"Category: {category_id} is the provider's")
        actions.extend(known.actions)
    mixins = [name for name in named if model.find_mixin(name) is not None]
    kept = {action for mixin in model.mixins if mixin.id not in named for action in mixin.actions}
    kept.update(action for kind in model.kinds for action in kind.actions)
    return (*mixins, *(action for action in dict.fromkeys(actions) if action not in kept and model.find_action(action)))


def _check_names(category: Mixin | Action) -> None:
    if not category.scheme.endswith("#"):
        raise OcciError(400, f"Category: the scheme of {quote_input(category.id)} does not end in #")
    if category.scheme.startswith(STANDARD_SCHEMES):
        raise OcciError(403, f"Category: the scheme of {category.id} is the standard's; use one of your own")
    if category.scheme.startswith(PROVIDER_SCHEMES):
        raise OcciError(403, f"Category: the scheme of {category.id} is the provider's; use one of your own")
    for spec in category.attributes:
        if spec.name.startswith(STANDARD_ATTRIBUTES):
            raise OcciError(400, f"Category: {category.id} cannot declare {spec.name}, whose name is the standard's")
        if len(spec.pattern) > MAX_PATTERN_CHARACTERS:
            raise OcciError(
                400, f"attribute {spec.name}: its pattern has more than {MAX_PATTERN_CHARACTERS} characters"
            )
        try:
            compile_pattern(spec.pattern)
        except re2.error:
            raise OcciError(
                400,
                f"attribute {spec.name}: its pattern {quote_input(spec.pattern)} is no regular expression (RE2 syntax)",
            ) from None
        if spec.default is not None:
            check_value(spec.default, spec)


def _check_location(mixin: Mixin, model: Model, taken: set[str]) -> None:
    location = mixin.location
    if not location:
        raise OcciError(400, f'Category: {mixin.id} has no location; send location="/{mixin.term}/"')
    segments = location[1:-1].split("/")
    is_path = len(location) > 2 and location.startswith("/") and location.endswith("/")
    if not is_path or not all(segments) or {".", ".."}.intersection(segments) or "?" in location or "#" in location:
        raise OcciError(400, f'Category: the location {quote_input(location)} is no path such as "/{mixin.term}/"')
    if location.startswith(RESERVED_LOCATIONS[1:]):
        raise OcciError(400, f"Category: the location {quote_input(location)} is reserved")
    if "%" in location:
        raise OcciError(
            400, f"Category: the location {quote_input(location)} is percent-encoded, and paths are decoded"
        )
    if isinstance(kind := model.find_by_location(location[: location.rindex("/", 0, -1) + 1]), Kind):
        raise OcciError(
            400, f"Category: the location {quote_input(location)} is that of an entity of the kind {kind.term}"
        )
    other = model.find_by_location(location)
    if (other is not None and other.id != mixin.id) or location in taken:
        raise OcciConflictError(
            ConflictCause.LOCATION_IN_USE,
            f"Category: the location {quote_input(location)} is taken by another category",
        )
    taken.add(location)


def _is_mixin(category_id: str, wanted: dict[str, Kind | Mixin | Action], model: Model) -> bool:
    return model.find_mixin(category_id) is not None or isinstance(wanted.get(category_id), Mixin)


def is_users_action(action_id: str, model: Model) -> bool:
    """Return true if an action belongs only to user mixins."""
    if any(action_id in kind.actions for kind in model.kinds):
        return False
    return all(mixin.user for mixin in model.mixins if action_id in mixin.actions)
