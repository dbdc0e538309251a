# SPDX-License-Identifier: Apache-2.0
"""The text grammar: legal, tolerated and refused input, with the place of errors (sections 4 and 12)."""

from __future__ import annotations

import pytest
from occi_objects import BEAM, INTERFACE, MODEL, START, make_amqplink, make_compute

from simyard.occi.errors import OcciError
from simyard.occi.model import Action, AttributeSpec, Draft, DraftLink, Kind, Mixin, Model, Resource
from simyard.occi.negotiation import Rendering
from simyard.occi.parsing import MAX_BODY_BYTES, MAX_HEADER_BYTES, parse
from simyard.occi.rendering import (
    render_collection,
    render_entity,
    render_entity_part,
    render_error,
    render_locations,
    render_model,
)
from simyard.occi.standard import COMPUTE, NETWORK, NETWORKINTERFACE, STANDARD

COMPUTE_LINE = 'Category: compute; scheme="http://schemas.ogf.org/occi/infrastructure#"; class="kind"'


def read(body: str) -> Draft:
    return parse(Rendering.TEXT_PLAIN, (), body.encode(), MODEL)


def read_headers(*headers: tuple[str, str]) -> Draft:
    return parse(Rendering.TEXT_OCCI, headers, b"", MODEL)


def refusal(body: str) -> str:
    with pytest.raises(OcciError) as caught:
        read(body)
    assert caught.value.status == 400
    return caught.value.message


def attributes(text: str) -> dict[str, object]:
    return dict(read(f"X-OCCI-Attribute: {text}").attributes)


@pytest.mark.parametrize(
    "line",
    [
        COMPUTE_LINE,
        COMPUTE_LINE + ";",
        COMPUTE_LINE + " ; ",
        COMPUTE_LINE.replace("; ", ";"),
        COMPUTE_LINE.replace("Category: ", "Category:"),
        COMPUTE_LINE.replace("Category", "category"),
        COMPUTE_LINE.replace('"kind"', "kind"),
        COMPUTE_LINE.replace('"kind"', "Kind"),
        COMPUTE_LINE.replace('; class="kind"', ""),
        COMPUTE_LINE + "\r",
        'Category: compute; class=kind; scheme="http://schemas.ogf.org/occi/infrastructure#"',
        f'{COMPUTE_LINE}; title="Compute, such as; this"; location="/compute/"; unknown="x"',
        "\n\n" + COMPUTE_LINE + "\n \n",
        "\ufeff" + COMPUTE_LINE,
    ],
)
def test_a_category_is_read_however_clients_write_it(line: str) -> None:
    assert read(line).kind == COMPUTE
    assert read(line + "\n").kind == COMPUTE


def test_lines_and_comma_lists_mean_the_same() -> None:
    as_lines = read('X-OCCI-Attribute: a="x,y;z"\nX-OCCI-Attribute: b=2\nX-OCCI-Location: /c/1\nX-OCCI-Location: /c/2')
    as_lists = read('X-OCCI-Attribute: a="x,y;z",b=2\nX-OCCI-Location: /c/1, /c/2')
    as_headers = read_headers(
        ("X-OCCI-Attribute", 'a="x,y;z"'), ("x-occi-attribute", "b=2"), ("X-OCCI-Location", "/c/1,/c/2")
    )
    with_underscores = read_headers(("X_OCCI_ATTRIBUTE", 'a="x,y;z", b=2'), ("X_OCCI_LOCATION", "/c/1, /c/2"))
    assert as_lines == as_lists == as_headers == with_underscores
    assert (as_lines.attributes, as_lines.locations) == ({"a": "x,y;z", "b": 2}, ("/c/1", "/c/2"))


def test_several_categories_stand_in_one_header() -> None:
    mixin = f'{BEAM.term}; scheme="{BEAM.scheme}"; class="mixin"'
    draft = read_headers(("Category", f"{COMPUTE_LINE.removeprefix('Category: ')}, {mixin};"), ("Accept", "*/*"))
    assert (draft.kind, draft.mixins) == (COMPUTE, (BEAM.id,))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"a"', "a"),
        ('""', ""),
        ("12", 12),
        ("-3", -3),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("false", False),
        ("eth0", "eth0"),
        ("007", "007"),
        ('"12"', "12"),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", "9223372036854775808"),
        ("1e999", "1e999"),
        (r'"say \"hi\", \\ and C:\temp"', 'say "hi", \\ and C:\\temp'),
        (r'"\u000a\u00e9\ud83d\ude00"', "\né😀"),
        (r'"\ud83d \udc00 \u12"', r"\ud83d \udc00 \u12"),
    ],
)
def test_values_are_strings_numbers_or_truth(text: str, value: object) -> None:
    found = attributes(f"com.example.x={text}")["com.example.x"]
    assert (type(found), found) == (type(value), value)


def test_declared_types_win_over_how_a_client_wrote_a_value() -> None:
    interface = f'Category: {INTERFACE.term}; scheme="{INTERFACE.scheme}"; class="mixin"'
    lines = [
        'occi.compute.cores="2"',
        "occi.compute.hostname=12",
        "occi.core.title=3",
        'cloud4e.fast="true"',
        r'cloud4e.nodes="[1, \"a\"]"',
        r'cloud4e.mesh="{\"size\": 0.5}"',
    ]
    draft = read("\n".join([COMPUTE_LINE, interface, *(f"X-OCCI-Attribute: {line}" for line in lines)]))
    assert draft.attributes == {
        "occi.compute.cores": 2,
        "occi.compute.hostname": "12",
        "occi.core.title": "3",
        "cloud4e.fast": True,
        "cloud4e.nodes": [1, "a"],
        "cloud4e.mesh": {"size": 0.5},
    }


def test_a_link_has_a_target_a_kind_and_attributes() -> None:
    draft = read(
        f'Link: </network/1>; rel="{NETWORK}"; self="/networkinterface/2"; category="{NETWORKINTERFACE} http://x/y#z"; '
        'occi.networkinterface.mac="00:11:22:33:44:55"; com.example.n=3; com.example.t=token'
    )
    assert draft.links == (
        DraftLink(
            "/network/1",
            (NETWORK,),
            "/networkinterface/2",
            NETWORKINTERFACE,
            ("http://x/y#z",),
            {"occi.networkinterface.mac": "00:11:22:33:44:55", "com.example.n": 3, "com.example.t": "token"},
        ),
    )


def test_links_of_actions_are_no_links_of_the_entity() -> None:
    draft = read(f'Link: </compute/1?action=start>; rel="{START}", </network/1>; rel="{NETWORK}"')
    assert draft.actions == (START,)
    assert [link.target for link in draft.links] == ["/network/1"]
    elsewhere = read(f'Link: <http://x/y?action=z>; rel="{NETWORK}"; category="{NETWORKINTERFACE}"')
    assert (elsewhere.actions, len(elsewhere.links)) == ((), 1)


def test_a_mixin_is_defined_with_attributes_and_actions() -> None:
    draft = read(
        'Category: beam; scheme="http://cloud4e/beam#"; class="mixin"; title="A beam"; '
        'rel="http://x/y#z http://x/y#w"; '
        'location="/beam/"; attributes="a.b a.c{immutable} a.d{required} a.e{immutable required} a.f"; '
        'actions="http://cloud4e/beam/action#solve"\n'
        'Category: solve; scheme="http://cloud4e/beam/action#"; class="action"; attributes="n{required}"'
    )
    assert draft.definitions == (
        Mixin(
            "http://cloud4e/beam#",
            "beam",
            "A beam",
            "/beam/",
            ("http://x/y#z", "http://x/y#w"),
            (),
            (
                AttributeSpec("a.b"),
                AttributeSpec("a.c", mutable=False),
                AttributeSpec("a.d", required=True),
                AttributeSpec("a.e", mutable=False, required=True),
                AttributeSpec("a.f"),
            ),
            ("http://cloud4e/beam/action#solve",),
        ),
        Action("http://cloud4e/beam/action#", "solve", "", (AttributeSpec("n", required=True),)),
    )
    assert draft.action == "http://cloud4e/beam/action#solve"


def test_two_kinds_or_two_actions_are_none_of_a_draft() -> None:
    two = COMPUTE_LINE + "\n" + COMPUTE_LINE.replace("compute", "network")
    assert (read(two).kind, [kind.term for kind in read(two).definitions]) == ("", ["compute", "network"])
    assert read(COMPUTE_LINE + "\n" + COMPUTE_LINE).kind == COMPUTE


def test_a_uri_list_has_comments() -> None:
    draft = parse(Rendering.URI_LIST, (), b"# all\r\nhttp://h/compute/1\r\n\r\n/compute/2", MODEL)
    assert draft.locations == ("http://h/compute/1", "/compute/2")


def test_a_body_may_be_latin_1_when_it_says_so() -> None:
    headers = (("Content-Type", "text/plain; charset=ISO-8859-1"),)
    draft = parse(Rendering.TEXT_PLAIN, headers, 'X-OCCI-Attribute: occi.core.title="Träger"'.encode("latin-1"), MODEL)
    assert draft.attributes == {"occi.core.title": "Träger"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("Kategorie: compute", 'line 1: "Kategorie" is none of the fields Category, Link'),
        (COMPUTE_LINE + "\nhello", 'line 2: "hello" is none of the fields'),
        ("Category: ; scheme=x", "line 1, Category, column 11: expected a term"),
        ("Category: compute", 'has no scheme; write compute; scheme="..."'),
        ('Category: compute; scheme="a b"; class=kind', "is no category"),
        ('Category: compute; scheme="http://x#"', "has no class, and is unknown"),
        (COMPUTE_LINE.replace("kind", "type"), 'the class "type" is unknown'),
        (COMPUTE_LINE + '; title="a', 'expected name="value" (quotes closed)'),
        (COMPUTE_LINE + '; class="kind"', '"class" is given twice'),
        (COMPUTE_LINE + '; attributes="a{immutable"', "a brace in attributes is never closed"),
        (COMPUTE_LINE + '; attributes="a=b"', '"a=b" in attributes is no name'),
        (COMPUTE_LINE + '; location="a b"', '"a b" is no URI'),
        (COMPUTE_LINE + " compute", "expected a comma or the end"),
        ("Link: /network/1", "expected a target in angle brackets"),
        ("Link: </network/1", "expected a target in angle brackets"),
        ('Link: </c/1?action=start>; self="x"', "the link of an action has no rel"),
        ('Link: <a`b>; rel="x"', "is no URI"),
        ('Link: </a>; rel="x"; rel="x"', '"rel" is given twice'),
        ("X-OCCI-Attribute: a", 'expected name="value"'),
        ("X-OCCI-Attribute: a=", 'expected name="value"'),
        ("X-OCCI-Attribute: a=b c", "column 23: expected a comma or the end"),
        ("X-OCCI-Attribute:a=b c", "column 22: expected a comma or the end"),
        ('X-OCCI-Attribute: a="1"2', "expected a comma or the end"),
        ("X-OCCI-Attribute: a=1, a=2", "the attribute a is given twice"),
        ("X-OCCI-Attribute: $a=1", '"$a" is no name of an attribute'),
        ("X-OCCI-Attribute: a=\x01", "has a control character"),
        ("X-OCCI-Location: http://h/ü", "is no URI; percent-encode"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(body: str, said: str) -> None:
    message = refusal(body)
    assert said in message
    assert message.startswith(("line ", "X-OCCI", "Category"))
    assert "\n" not in message


def test_broken_utf_8_is_refused() -> None:
    for body in (b"\xff", b"X-OCCI-Attribute: a=\xc3"):
        with pytest.raises(OcciError, match=r"the body is not utf-8: .* at byte") as caught:
            parse(Rendering.TEXT_PLAIN, (), body, MODEL)
        assert caught.value.status == 400
    with pytest.raises(OcciError, match="header X-OCCI-Attribute: is not UTF-8"):
        read_headers(("X-OCCI-Attribute", 'a="\udcff"'))


def test_input_is_bounded() -> None:
    sizes = [
        lambda: parse(Rendering.TEXT_PLAIN, (), b"\n" * (MAX_BODY_BYTES + 1), MODEL),
        lambda: parse(Rendering.JSON, (), b" " * (MAX_BODY_BYTES + 1), MODEL),
        lambda: read_headers(("X-Other", "a" * MAX_HEADER_BYTES)),
        lambda: read("\n".join(f'Category: t{n}; scheme="http://x#"; class="mixin"' for n in range(1001))),
    ]
    for too_large in sizes:
        with pytest.raises(OcciError) as caught:
            too_large()
        assert caught.value.status == 413
    assert read("\n" * MAX_BODY_BYTES) == Draft()


def test_a_compute_is_rendered_exactly_so() -> None:
    compute = make_compute(
        title="A beam",
        summary="Solves",
        mixins=(BEAM.id,),
        actions=(START,),
        attributes={"occi.compute.cores": 2, "occi.compute.memory": 4.0, "com.example.on": True, "x.y": 'a "b" \\'},
        links=(
            make_amqplink(mixins=(INTERFACE.id,), target_kind=("http://schemas.ogf.org/occi/platform#application",)),
        ),
    )
    assert render_entity(compute, Rendering.TEXT_PLAIN, "https://h", MODEL).body.decode() == (
        'Category: compute; scheme="http://schemas.ogf.org/occi/infrastructure#"; class="kind"; location="/compute/"\n'
        'Category: beam; scheme="http://simyard.dev/occi/os_tpl#"; class="mixin"; location="/os_tpl/beam/"\n'
        'Link: </compute/c1?action=start>; rel="http://schemas.ogf.org/occi/infrastructure/compute/action#start"\n'
        'Link: </application/a1>; rel="http://schemas.ogf.org/occi/platform#application"; self="/amqplink/l1"; '
        'category="http://schemas.ogf.org/occi/infrastructure#amqplink '
        'http://simyard.dev/occi/service/beam#interface"; '
        'occi.core.id="l1"; occi.core.source="/compute/c1"; occi.core.target="/application/a1"; '
        'occi.amqplink.queue="q.1"\n'
        'X-OCCI-Attribute: occi.core.id="c1"\n'
        'X-OCCI-Attribute: occi.core.title="A beam"\n'
        'X-OCCI-Attribute: occi.core.summary="Solves"\n'
        "X-OCCI-Attribute: occi.compute.cores=2\n"
        "X-OCCI-Attribute: occi.compute.memory=4.0\n"
        "X-OCCI-Attribute: com.example.on=true\n"
        'X-OCCI-Attribute: x.y="a \\"b\\" \\\\"\n'
    )


def test_a_link_is_rendered_with_its_ends() -> None:
    lines = (
        render_entity(make_amqplink(source_kind=COMPUTE), Rendering.TEXT_PLAIN, "", MODEL).body.decode().splitlines()
    )
    assert 'X-OCCI-Attribute: occi.core.source="/compute/c1"' in lines
    assert f'X-OCCI-Attribute: occi.core.source.kind="{COMPUTE}"' in lines
    assert 'X-OCCI-Attribute: occi.core.target="/application/a1"' in lines


def test_categories_that_are_gone_are_rendered_by_their_id() -> None:
    compute = make_compute(mixins=("http://gone.example.com/x#y",))
    body = render_entity(compute, Rendering.TEXT_PLAIN, "", MODEL).body.decode()
    assert 'Category: y; scheme="http://gone.example.com/x#"; class="mixin"\n' in body


def test_the_model_begins_with_core_and_names_parents_first() -> None:
    lines = render_model(MODEL.ordered, Rendering.TEXT_PLAIN).body.decode().splitlines()
    assert [line.split(";")[0] for line in lines[:3]] == ["Category: entity", "Category: resource", "Category: link"]
    seen: set[str] = set()
    for category in parse(Rendering.TEXT_PLAIN, (), "\n".join(lines).encode(), MODEL).definitions:
        rel = category.parent if isinstance(category, Kind) else "".join(getattr(category, "depends", ()))
        assert not rel or rel in seen
        seen.add(category.id)
    assert all('rel="' not in line for line in lines if "ipnetwork" in line)


def test_a_rel_that_is_not_in_the_model_is_left_out() -> None:
    orphan = Mixin("http://x#", "y", "", "/y/", depends=("http://nowhere#z",))
    assert b"rel=" not in render_model(Model((*STANDARD, orphan)).ordered[-1:], Rendering.TEXT_PLAIN, MODEL).body
    assert b'rel="' in render_model([BEAM], Rendering.TEXT_PLAIN, MODEL).body


def test_text_has_no_arrays_so_they_are_json_in_quotes() -> None:
    body = render_entity(make_compute(attributes={"a.b": [1, "x"]}), Rendering.TEXT_PLAIN, "", MODEL).body.decode()
    assert 'X-OCCI-Attribute: a.b="[1,\\"x\\"]"' in body


def test_large_and_small_numbers_have_no_exponent() -> None:
    compute = make_compute(attributes={"a.b": 1e22, "a.c": 1e-7, "a.d": float("nan")})
    body = render_entity(compute, Rendering.TEXT_PLAIN, "", MODEL).body.decode()
    assert "a.b=10000000000000000000000.0\n" in body
    assert "a.c=0.0000001\n" in body
    assert 'a.d="nan"\n' in body


def test_listings_are_absolute_in_every_rendering() -> None:
    paths = ["/compute/1", "/compute/2"]
    plain, uris, occi, json = (
        render_locations(paths, rendering, "https://h:1/")
        for rendering in (Rendering.TEXT_PLAIN, Rendering.URI_LIST, Rendering.TEXT_OCCI, Rendering.JSON)
    )
    assert plain.body == b"X-OCCI-Location: https://h:1/compute/1\nX-OCCI-Location: https://h:1/compute/2\n"
    assert uris.body == b"https://h:1/compute/1\nhttps://h:1/compute/2\n"
    assert (occi.body, occi.headers) == (
        b"OK",
        (("X-OCCI-Location", "https://h:1/compute/1, https://h:1/compute/2"),),
    )
    assert json.body == b'["https://h:1/compute/1","https://h:1/compute/2"]'
    assert render_locations([], Rendering.TEXT_PLAIN, "https://h").body == b""
    assert render_locations([], Rendering.TEXT_OCCI, "https://h").headers == ()


def test_collections_are_joined_from_parts() -> None:
    one, two = make_compute(), make_amqplink()
    plain = [render_entity_part(entity, Rendering.TEXT_PLAIN, MODEL) for entity in (one, two)]
    assert render_collection(plain[:1], plain[1:], Rendering.TEXT_PLAIN).body == plain[0] + b"\n" + plain[1]
    resource, link = (render_entity_part(entity, Rendering.JSON, MODEL) for entity in (one, two))
    both = render_collection([resource, resource], [link], Rendering.JSON)
    assert both.body == b'{"resources":[' + resource + b"," + resource + b'],"links":[' + link + b"]}"
    assert render_collection([], [], Rendering.JSON).body == b'{"resources":[]}'
    assert render_collection([], [], Rendering.JSON, of_links=True).body == b'{"links":[]}'
    assert render_collection([], [link], Rendering.JSON).body == b'{"links":[' + link + b"]}"


@pytest.mark.parametrize("rendering", [Rendering.TEXT_OCCI, Rendering.URI_LIST])
def test_full_listings_are_not_for_every_rendering(rendering: Rendering) -> None:
    with pytest.raises(OcciError) as caught:
        render_entity_part(make_compute(), rendering, MODEL)
    assert caught.value.status == 406
    with pytest.raises(OcciError):
        render_collection([], [], rendering)


def test_a_uri_list_has_listings_only() -> None:
    for render in (
        lambda: render_entity(make_compute(), Rendering.URI_LIST, "", MODEL),
        lambda: render_model(MODEL.ordered, Rendering.URI_LIST),
    ):
        with pytest.raises(OcciError) as caught:
            render()
        assert caught.value.status == 400


def test_errors_are_one_line_or_an_object() -> None:
    message = "line\none \x00 and\r\nmore"
    assert render_error(400, message, Rendering.TEXT_PLAIN).body == b"line one ? and more\n"
    assert render_error(404, "gone", Rendering.JSON).body == b'{"code":404,"message":"gone"}'
    assert render_error(404, "gone", Rendering.TEXT_OCCI).content_type.startswith("text/plain")


def test_rendering_never_fails_on_what_a_provider_holds() -> None:
    odd = Resource(COMPUTE, "\ud800", "/compute/x", attributes={"a.b": 2**70, "a.c": "\ud800", "a.d": [2**70]})
    for rendering in (Rendering.TEXT_PLAIN, Rendering.TEXT_OCCI, Rendering.JSON):
        assert render_entity(odd, rendering, "", MODEL).content_type.startswith(rendering)
