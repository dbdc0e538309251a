# SPDX-License-Identifier: Apache-2.0
"""User mixins on the query interface (sections 6 and 12.18 to 12.20)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from occi_objects import BEAM, CANCEL, INTERFACE, MINE, MODEL, SOLVE, START

from simyard.occi.errors import OcciError
from simyard.occi.model import Action, AttributeSpec, Category, Draft, Mixin, Model, ValueType
from simyard.occi.standard import COMPUTE, OS_TPL
from simyard.occi.validation import check_definitions, check_removals

RUN = Action("http://cloud4e/wing/action#", "run", "Run", (AttributeSpec("n", ValueType.NUMBER),))
WING = Mixin(
    "http://cloud4e/wing#",
    "wing",
    "Wing",
    "/wing/",
    attributes=(AttributeSpec("cloud4e.span", pattern="[0-9]+", default="3"),),
    actions=(RUN.id,),
)


def defined(*categories: Category) -> Draft:
    return Draft(definitions=categories)


def refused(status: int, said: str, *categories: Category) -> None:
    with pytest.raises(OcciError) as caught:
        check_definitions(defined(*categories), MODEL)
    assert (caught.value.status, said in caught.value.message) == (status, True), caught.value.message


def test_a_mixin_comes_with_attributes_and_actions() -> None:
    assert check_definitions(defined(WING, RUN), MODEL) == (replace(WING, user=True), RUN)


def test_ones_own_mixin_is_defined_again() -> None:
    changed = replace(MINE, title="Other", user=False)
    assert check_definitions(defined(changed), MODEL) == (replace(changed, user=True),)


def test_a_known_rel_is_kept_and_another_one_dropped() -> None:
    tag = replace(MINE, term="t", location="/t/", depends=(OS_TPL, "http://x#y", COMPUTE, WING.id))
    (found, *_) = check_definitions(defined(tag, WING, RUN), MODEL)
    assert isinstance(found, Mixin)
    assert found.depends == (OS_TPL, WING.id)


def test_the_actions_of_the_provider_and_what_is_named_as_the_standard_s_are_not_for_users() -> None:
    for action in (START, SOLVE.id):
        refused(403, "is the provider's; define one of your own", replace(WING, actions=(action,)))
    standard = "http://schemas.ogf.org/occi/infrastructure#"
    refused(403, "is the standard's", replace(MINE, scheme=standard))
    run = replace(RUN, scheme="http://schemas.ogf.org/occi/infrastructure/compute/action#")
    refused(403, "is the standard's", replace(WING, actions=(run.id,)), run)
    gpus = AttributeSpec("occi.compute.gpus")
    refused(400, "cannot declare occi.compute.gpus", replace(MINE, attributes=(gpus,)))
    refused(400, "cannot declare occi.compute.gpus", WING, replace(RUN, attributes=(gpus,)))


def test_an_action_of_another_mixin_of_ones_own_may_be_used() -> None:
    known = Model((*MODEL.ordered, replace(WING, user=True), RUN))
    assert check_definitions(defined(replace(MINE, actions=(RUN.id,))), known)


def test_what_is_wrong_with_a_definition_is_said() -> None:
    refused(400, "no mixin is defined")
    refused(400, "no mixin is defined", RUN)
    refused(400, "no mixin of this request has the action", WING, RUN, CANCEL)
    refused(400, "is unknown; define it in the same request", WING)
    refused(403, "is the provider's", INTERFACE)
    refused(403, "is the provider's", replace(MINE, scheme=BEAM.scheme, term=BEAM.term))
    refused(403, "is the provider's", replace(WING, actions=(SOLVE.id,)), SOLVE)
    refused(403, "clients define mixins only", WING, RUN, *MODEL.kinds[:1])
    refused(400, "is defined twice", WING, WING, RUN)
    refused(400, "does not end in #", replace(MINE, scheme="http://x/"))
    refused(400, "/wing/", replace(WING, location=""), RUN)
    refused(400, "has no location", replace(MINE, term="u", location=""))
    for location in ("tag/", "/tag", "/", "//", "/a//b/", "/../", "/a/?b/", "http://h/tag/"):
        refused(400, "is no path such as", replace(MINE, location=location))
    for location in ("/-/", "/-/x/", "/.well-known/x/"):
        refused(400, "is reserved", replace(MINE, location=location))
    refused(409, "is taken by another category", replace(MINE, location="/compute/"))
    refused(409, "is taken by another category", WING, RUN, replace(MINE, location=WING.location))
    refused(400, "cannot declare occi.core.id", replace(MINE, attributes=(AttributeSpec("occi.core.id"),)))
    refused(400, "is no regular expression", replace(MINE, attributes=(AttributeSpec("a", pattern="("),)))
    refused(400, "has more than 1000 characters", replace(MINE, attributes=(AttributeSpec("a", pattern="x" * 2000),)))
    refused(400, "does not match", replace(MINE, attributes=(AttributeSpec("a", pattern="x", default="y"),)))
    with pytest.raises(OcciError, match="not entities"):
        check_definitions(Draft(members=(Draft(), Draft())), MODEL)


def test_user_mixins_are_removed_with_the_actions_that_only_they_have() -> None:
    mine = replace(WING, user=True, actions=(RUN.id, START))
    model = Model((*MODEL.ordered, mine, RUN))
    assert check_removals(defined(mine), model) == (mine.id, RUN.id)
    assert check_removals(Draft(mixins=(mine.id, MINE.id)), model) == (mine.id, MINE.id, RUN.id)
    assert check_removals(defined(mine, RUN), model) == (mine.id, RUN.id)
    shared = Model((*model.ordered, replace(mine, term="other", location="/other/")))
    assert check_removals(defined(mine), shared) == (mine.id,)


@pytest.mark.parametrize(
    ("status", "draft"),
    [
        (400, Draft()),
        (403, Draft(definitions=(BEAM,))),
        (403, Draft(mixins=(INTERFACE.id,))),
        (403, Draft(definitions=(SOLVE,))),
        (403, Draft(definitions=MODEL.kinds[:1])),
        (404, Draft(definitions=(WING,))),
    ],
)
def test_what_is_not_ones_own_is_not_removed(status: int, draft: Draft) -> None:
    with pytest.raises(OcciError) as caught:
        check_removals(draft, MODEL)
    assert caught.value.status == status


@pytest.mark.parametrize("scheme", ["http://schemas.ogf.org/occi/mine#", "http://simyard.dev/occi/mine#"])
def test_the_standard_s_and_the_provider_s_schemes_are_not_the_clients(scheme: str) -> None:
    refused(403, "use one of your own", replace(WING, scheme=scheme), RUN)
    action = replace(RUN, scheme=scheme)
    refused(403, "use one of your own", replace(WING, actions=(action.id,)), action)


@pytest.mark.parametrize("location", ["/x%2e%2e/y/", "/compute/my-id_1.2/", "/link/x/"])
def test_a_location_that_no_request_reaches_or_that_an_entity_can_have_is_refused(location: str) -> None:
    refused(400, "location", replace(WING, location=location), RUN)
