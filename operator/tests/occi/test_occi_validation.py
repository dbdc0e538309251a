# SPDX-License-Identifier: Apache-2.0
"""Checks of creations, updates and invocations (sections 6, 7 and 12)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from occi_objects import (
    BEAM,
    CANCEL,
    INTERFACE,
    LARGE,
    MINE,
    MODEL,
    SMALL,
    SOLVE,
    START,
    STOP,
    make_amqplink,
    make_compute,
    resources,
)

from simyard.occi.errors import OcciError
from simyard.occi.model import ENTITY, Draft, DraftLink, Link, Resource
from simyard.occi.negotiation import Rendering
from simyard.occi.parsing import parse
from simyard.occi.rendering import render_entity
from simyard.occi.standard import (
    AMQPLINK,
    APPLICATION,
    COMPUTE,
    NETWORK,
    NETWORKINTERFACE,
    STORAGE,
    STORAGELINK,
    USER_DATA,
)
from simyard.occi.validation import (
    Update,
    check_association,
    check_creation,
    check_invocation,
    check_update,
    find_action,
)

CORES, MEMORY, STATE = "occi.compute.cores", "occi.compute.memory", "occi.compute.state"
PROGRESS, MATERIAL = "cloud4e.progress", "cloud4e.material"


def refused(status: int, said: str, draft: Draft, entity: Resource | Link | None = None, put: bool = False) -> None:
    with pytest.raises(OcciError) as caught:
        if entity is None:
            check_creation(draft, MODEL)
        else:
            check_update(draft, entity, MODEL, put)
    assert (caught.value.status, said in caught.value.message) == (status, True), caught.value.message


def test_a_compute_needs_no_template_and_no_attribute() -> None:
    checked = check_creation(Draft(COMPUTE), MODEL)
    assert (checked.kind.id, checked.mixins, checked.attributes, checked.id) == (COMPUTE, (), {}, "")


def test_a_creation_has_what_the_client_gave_then_templates_then_defaults() -> None:
    draft = Draft(COMPUTE, (SMALL.id, BEAM.id), {CORES: "2", "occi.core.title": "T", "occi.core.summary": "S"})
    checked = check_creation(draft, MODEL)
    assert checked.attributes == {CORES: 2, MEMORY: 1}
    assert checked.given == {CORES}
    assert (checked.mixins, checked.title, checked.summary) == ((SMALL, BEAM), "T", "S")


@pytest.mark.parametrize("value", [2.0, "2.0", "2", 2])
def test_a_number_without_a_fraction_is_an_integer_whatever_it_is_written_like(value: float | str) -> None:
    cores = check_creation(Draft(COMPUTE, attributes={CORES: value}), MODEL).attributes[CORES]
    assert (cores, type(cores)) == (2, int)
    refused(400, "does not match the pattern", Draft(COMPUTE, attributes={CORES: 2.5}))


@pytest.mark.parametrize(
    ("asked", "honoured"),
    [
        ("my-vm", "my-vm"),
        ("urn:uuid:9f4c7c", "9f4c7c"),
        ("a b", ""),
        ("../x", ""),
        ("", ""),
        ("ü", ""),
        ("x" * 300, ""),
    ],
)
def test_a_clients_id_is_honoured_when_it_is_safe_and_else_ignored(asked: str, honoured: str) -> None:
    assert check_creation(Draft(COMPUTE, attributes={"occi.core.id": asked}), MODEL).id == honoured


def test_links_are_created_with_their_resource() -> None:
    link = DraftLink(
        "/network/1", (NETWORK,), "", NETWORKINTERFACE, (), {"occi.networkinterface.mac": "00:11:22:33:44:55"}
    )
    bare = DraftLink("urn:elsewhere")
    checked = check_creation(Draft(COMPUTE, links=(link, bare)), MODEL)
    first, second = checked.links
    assert (first.kind.id, first.target, first.target_kind) == (NETWORKINTERFACE, "/network/1", (NETWORK,))
    assert (second.kind.term, second.source) == ("link", "")


def test_a_link_is_created_by_its_ends() -> None:
    ends = {"occi.core.source": "/compute/1", "occi.core.target": "/storage/1", "occi.core.target.kind": STORAGE}
    checked = check_creation(Draft(STORAGELINK, attributes={**ends, "occi.storagelink.deviceid": "vda"}), MODEL)
    assert (checked.source, checked.target, checked.target_kind) == ("/compute/1", "/storage/1", (STORAGE,))
    refused(400, "occi.core.target: is required by every link", Draft(STORAGELINK, attributes={
        "occi.core.source": "/compute/1", "occi.storagelink.deviceid": "vda"}))  # fmt: skip


def test_an_amqplink_leads_to_its_queue_unless_it_says_where() -> None:
    given = {"occi.core.source": "/compute/1", "occi.amqplink.queue": "occi.amqp.service.a b"}
    assert check_creation(Draft(AMQPLINK, attributes=given), MODEL).target == "amqp:///occi.amqp.service.a%20b"
    elsewhere = {**given, "occi.core.target": "amqp:///q"}
    assert check_creation(Draft(AMQPLINK, attributes=elsewhere), MODEL).target == "amqp:///q"


def test_an_architecture_that_nobody_knows_is_kept_as_it_is_sent() -> None:
    name = "occi.compute.architecture"
    assert check_creation(Draft(COMPUTE, attributes={name: "arch"}), MODEL).attributes[name] == "arch"


def test_what_is_immutable_and_required_is_given_at_creation() -> None:
    given_once = Draft(COMPUTE, (USER_DATA,), {"occi.compute.userdata": "aGk="})
    assert check_creation(given_once, MODEL).attributes == {"occi.compute.userdata": "aGk="}
    refused(400, "occi.compute.userdata: is required", Draft(COMPUTE, (USER_DATA,)))


@pytest.mark.parametrize(
    ("status", "said", "draft"),
    [
        (400, "exactly one kind must be named, not none", Draft()),
        (400, "exactly one kind", Draft(mixins=(BEAM.id,))),
        (400, "entity is abstract", Draft(ENTITY)),
        (400, 'the kind "http://x#y" is unknown', Draft("http://x#y")),
        (400, "is unknown", Draft(BEAM.id)),
        (400, 'the mixin "http://x#y" is unknown', Draft(COMPUTE, ("http://x#y",))),
        (403, "does not apply to the kind network", Draft(NETWORK, (INTERFACE.id,))),
        (403, "does not apply to the kind application", Draft(APPLICATION, (BEAM.id,))),
        (400, "are both templates of", Draft(COMPUTE, (SMALL.id, LARGE.id))),
        (400, "occi.storage.size: is required", Draft(STORAGE)),
        (403, "occi.compute.state: is immutable", Draft(COMPUTE, attributes={STATE: "active"})),
        (400, 'attribute "com.example.x": the kind compute', Draft(COMPUTE, attributes={"com.example.x": 1})),
        (400, "is not of the type number", Draft(COMPUTE, attributes={CORES: "many"})),
        (400, "does not match", Draft(COMPUTE, attributes={CORES: 0})),
        (400, "does not match", Draft(COMPUTE, attributes={CORES: 1.5})),
        (400, "does not match", Draft(COMPUTE, attributes={MEMORY: -1})),
        (400, "an action is invoked", Draft(COMPUTE, action=START)),
        (400, "compute is no link", Draft(COMPUTE, attributes={"occi.core.target": "/x"})),
        (400, "network is no kind of link", Draft(COMPUTE, links=(DraftLink("/x", kind=NETWORK),))),
        (400, "has no target", Draft(COMPUTE, links=(DraftLink(path="/x"),))),
        (400, "is no URI", Draft(COMPUTE, links=(DraftLink("a> b"),))),
        (400, "is no URI", Draft(COMPUTE, links=(DraftLink("/a", ('x"y',)),))),
        (
            400,
            'occi.core.target: "a> b" is no URI',
            Draft(
                AMQPLINK, attributes={"occi.core.source": "/c", "occi.core.target": "a> b", "occi.amqplink.queue": "q"}
            ),
        ),
        (
            400,
            "occi.core.target.kind",
            Draft(
                AMQPLINK,
                attributes={
                    "occi.core.source": "/c",
                    "occi.core.target": "/a",
                    "occi.core.target.kind": '"',
                    "occi.amqplink.queue": "q",
                },
            ),
        ),
        (400, "deviceid: is required", Draft(COMPUTE, links=(DraftLink("/x", kind=STORAGELINK),))),
        (403, "does not apply", Draft(COMPUTE, links=(DraftLink("/x", kind=NETWORKINTERFACE, mixins=(BEAM.id,)),))),
    ],
)
def test_a_creation_is_refused_with_a_reason(status: int, said: str, draft: Draft) -> None:
    refused(status, said, draft)


COMPUTE_1 = make_compute(
    title="T",
    mixins=(BEAM.id, SMALL.id, INTERFACE.id, MINE.id),
    attributes={
        CORES: 1,
        MEMORY: 1,
        "occi.compute.hostname": "web1",
        STATE: "active",
        PROGRESS: 0.5,
        MATERIAL: "steel",
    },
    actions=(STOP, SOLVE.id, CANCEL.id),
    links=(make_amqplink(),),
)


def test_a_partial_update_changes_what_is_sent() -> None:
    draft = Draft(COMPUTE, attributes={CORES: "2", MATERIAL: "wood", "occi.core.title": "U", MEMORY: 1})
    assert check_update(draft, COMPUTE_1, MODEL, False) == Update({CORES: 2, MATERIAL: "wood"}, title="U")
    assert check_update(Draft(), COMPUTE_1, MODEL, False) == Update()


def test_a_rendering_can_be_sent_back_when_the_service_has_gone_on() -> None:
    read = {**COMPUTE_1.attributes, PROGRESS: 0.25, MATERIAL: "wood", "occi.core.title": COMPUTE_1.title}
    sent = Draft(COMPUTE, COMPUTE_1.mixins, read)
    assert check_update(sent, COMPUTE_1, MODEL, True) == Update({MATERIAL: "wood"})
    refused(403, f"{PROGRESS}: is immutable", Draft(attributes={PROGRESS: 0.25}), COMPUTE_1, False)


def test_an_unknown_immutable_or_wrong_attribute_is_refused_in_an_update() -> None:
    for put in (False, True):
        refused(403, "occi.compute.state: is immutable", Draft(attributes={STATE: "inactive"}), COMPUTE_1, put)
        refused(403, "occi.core.id: is immutable", Draft(attributes={"occi.core.id": "c2"}), COMPUTE_1, put)
        refused(400, "/compute/c1 has none of that name", Draft(attributes={"a.b": 1}), COMPUTE_1, put)
        refused(400, "cannot change", Draft(NETWORK), COMPUTE_1, put)
        refused(400, "is unknown", Draft(mixins=("http://x#y",)), COMPUTE_1, put)
        refused(
            403,
            "does not apply",
            Draft(mixins=("http://schemas.ogf.org/occi/infrastructure/network#ipnetwork",)),
            COMPUTE_1,
            put,
        )
        refused(400, "an action is invoked", Draft(action=STOP), COMPUTE_1, put)
        refused(400, "compute is no link", Draft(attributes={"occi.core.source": "/x"}), COMPUTE_1, put)
        refused(400, "one entity, not of 2", Draft(members=(Draft(), Draft())), COMPUTE_1, put)


@pytest.mark.parametrize("rendering", [Rendering.TEXT_PLAIN, Rendering.TEXT_OCCI, Rendering.JSON])
@pytest.mark.parametrize("put", [False, True])
def test_a_rendering_that_is_sent_back_changes_nothing(rendering: Rendering, put: bool) -> None:
    link = make_amqplink(title="L", source_kind=COMPUTE, target_kind=(APPLICATION,))
    for entity in (COMPUTE_1, replace(COMPUTE_1, links=()), link):
        rendered = render_entity(entity, rendering, "", MODEL)
        draft = parse(rendering, rendered.headers, rendered.body, MODEL)
        if put or not isinstance(entity, Resource) or not entity.links or rendering is not Rendering.JSON:
            assert check_update(draft, entity, MODEL, put) == Update()


def applies(mixin_id: str, entity: Resource) -> bool:
    mixin = MODEL.find_mixin(mixin_id)
    assert mixin is not None
    try:
        check_association(mixin, entity, MODEL)
    except OcciError:
        return False
    return True


@given(entity=resources())
def test_any_rendering_can_be_put_back(entity: Resource) -> None:
    mixins = tuple(mixin for mixin in entity.mixins if mixin != LARGE.id and applies(mixin, entity))
    declared = MODEL.collect_specs((*mixins, entity.kind))
    attributes = {name: value for name, value in entity.attributes.items() if name in declared}
    entity = replace(entity, mixins=mixins, attributes=attributes)
    rendered = render_entity(entity, Rendering.TEXT_PLAIN, "", MODEL)
    draft = parse(Rendering.TEXT_PLAIN, (), rendered.body, MODEL)
    assert check_update(draft, entity, MODEL, True) == Update()


def test_a_full_update_takes_away_what_it_leaves_out() -> None:
    update = check_update(Draft(COMPUTE, attributes={MEMORY: 4}), COMPUTE_1, MODEL, True)
    assert update.attributes == {MEMORY: 4}  # the cores keep the template's default
    assert update.removed == {"occi.compute.hostname", MATERIAL}
    assert (update.dissociated, update.title) == ((MINE.id,), "")
    more_cores = replace(COMPUTE_1, attributes={CORES: 3})
    assert check_update(Draft(COMPUTE), more_cores, MODEL, True).attributes == {CORES: 1}
    storage = Resource(STORAGE, "s", "/storage/s", attributes={"occi.storage.size": 1})
    refused(400, "a full update must have it", Draft(STORAGE), storage, True)
    assert check_update(Draft(STORAGE), storage, MODEL, False) == Update()


def test_another_template_replaces_the_first() -> None:
    update = check_update(Draft(mixins=(LARGE.id,)), COMPUTE_1, MODEL, False)
    assert (update.mixins, update.dissociated) == ((LARGE,), (SMALL.id,))
    assert update.attributes == {CORES: 4, MEMORY: 8}
    own_cores = check_update(Draft(mixins=(LARGE.id,), attributes={CORES: 3}), COMPUTE_1, MODEL, False)
    assert own_cores.attributes == {CORES: 3, MEMORY: 8}


def test_a_mixin_that_is_added_brings_its_attributes() -> None:
    bare = make_compute()
    update = check_update(Draft(mixins=(INTERFACE.id,), attributes={MATERIAL: "wood"}), bare, MODEL, False)
    assert (update.mixins, update.attributes) == ((INTERFACE,), {MATERIAL: "wood"})
    refused(400, "has none of that name", Draft(attributes={MATERIAL: "wood"}), bare)
    refused(400, "is required by the mixins that are added", Draft(mixins=(USER_DATA,)), bare)
    userdata = Draft(mixins=(USER_DATA,), attributes={"occi.compute.userdata": "x"})
    assert check_update(userdata, bare, MODEL, False).attributes == {"occi.compute.userdata": "x"}
    refused(403, "is immutable", replace(userdata, attributes={"occi.compute.userdata": "y"}),
            replace(bare, mixins=(USER_DATA,), attributes={"occi.compute.userdata": "x"}))  # fmt: skip


def test_new_links_are_made_by_a_partial_update_only() -> None:
    old, new = DraftLink("/application/a1", path="http://h/amqplink/l1"), DraftLink("/network/1", kind=NETWORKINTERFACE)
    draft = Draft(links=(old, new))
    assert [link.target for link in check_update(draft, COMPUTE_1, MODEL, False).links] == ["/network/1"]
    assert check_update(draft, COMPUTE_1, MODEL, True).links == ()


def test_the_ends_of_a_link_stay() -> None:
    link = make_amqplink()
    same = Draft(attributes={"occi.core.source": "https://h:1/compute/c1", "occi.amqplink.queue": "q.2"})
    assert check_update(same, link, MODEL, False) == Update({"occi.amqplink.queue": "q.2"})
    refused(403, "delete the link and make another", Draft(attributes={"occi.core.target": "/compute/c2"}), link)
    refused(403, "is immutable", Draft(attributes={"occi.core.source": "/compute/c2"}), link)
    refused(403, "is immutable", Draft(attributes={"occi.core.source": "/x/compute/c1"}), link)
    refused(403, "is immutable", Draft(attributes={"occi.core.source": "https://h:1/compute/c2"}), link)


def test_an_invocation_has_its_parameters_and_defaults() -> None:
    draft = Draft(action=SOLVE.id, attributes={"cloud4e.load": "3"})
    assert check_invocation(draft, "solve", COMPUTE_1, MODEL) == (SOLVE, {"cloud4e.load": 3, "cloud4e.steps": 10})
    both = [COMPUTE_1, replace(COMPUTE_1, id="c2", path="/compute/c2")]
    assert check_invocation(draft, "solve", both, MODEL)[0] == SOLVE
    assert check_invocation(draft, "solve", [], MODEL)[0] == SOLVE


@pytest.mark.parametrize(
    ("draft", "term", "said"),
    [
        (Draft(), "solve", "send exactly one Category with class=action, not none"),
        (Draft(definitions=(SOLVE, CANCEL)), "solve", "exactly one Category with class=action, not 2"),
        (Draft(action="http://x#solve"), "solve", 'the action "http://x#solve" is unknown'),
        (Draft(action=CANCEL.id), "solve", "the Category names another action, cancel"),
        (
            Draft(action=START),
            "start",
            "/compute/c1: the action start does not apply now; these do: stop, solve, cancel",
        ),
        (Draft(action=SOLVE.id), "solve", "cloud4e.load: is required by the action solve"),
        (Draft(action=CANCEL.id, attributes={"a": 1}), "cancel", "the action cancel has none of that name"),
        (Draft(action=SOLVE.id, attributes={"cloud4e.load": "x"}), "solve", "is not of the type number"),
    ],
)
def test_an_invocation_is_refused_with_a_reason(draft: Draft, term: str, said: str) -> None:
    with pytest.raises(OcciError) as caught:
        check_invocation(draft, term, COMPUTE_1, MODEL)
    assert caught.value.status == 400
    assert said in caught.value.message


def test_every_member_must_have_the_action() -> None:
    stopped = replace(COMPUTE_1, id="c2", path="/compute/c2", actions=(START,))
    with pytest.raises(OcciError, match="/compute/c2: the action stop does not apply"):
        check_invocation(Draft(action=STOP), "stop", [COMPUTE_1, stopped], MODEL)


def test_an_action_is_found_by_its_term_when_only_one_has_it() -> None:
    assert find_action("solve", COMPUTE_1, MODEL) == SOLVE
    twice = replace(COMPUTE_1, actions=(STOP, "http://schemas.ogf.org/occi/platform/application/action#stop"))
    for term, entity, said in (("stop", twice, "several actions"), ("x", COMPUTE_1, "no such action applies now")):
        with pytest.raises(OcciError, match=said):
            find_action(term, entity, MODEL)
    with pytest.raises(OcciError, match="no such action"):
        find_action("solve", [COMPUTE_1, make_compute()], MODEL)


def test_a_mixin_is_associated_where_it_applies() -> None:
    check_association(MINE, COMPUTE_1, MODEL)
    check_association(INTERFACE, make_amqplink(), MODEL)
    with pytest.raises(OcciError) as caught:
        check_association(BEAM, make_amqplink(), MODEL)
    assert caught.value.status == 403
