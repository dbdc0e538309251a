# SPDX-License-Identifier: Apache-2.0
"""Values come back as they were, whatever is in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from simyard_sites.base import InvalidSpecError, Owner
from simyard_sites.opennebula.ownership import Ownership
from simyard_sites.opennebula.templates import render

XML_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffe\uffff").filter(
    lambda character: character in "\t\n\r" or ord(character) >= 0x20
))  # fmt: skip
AWKWARD = st.sampled_from(
    ['"', '\\"', "\\", "\n", "\r\n", "]]>", "<![CDATA[", "&amp;", "&", "<a>", "]", "=", "ü€😀", ","]
)
VALUES = st.one_of(XML_TEXT, st.lists(AWKWARD).map("".join)).filter(bool)


def read(template: str) -> list[tuple[str, object]]:
    """As OpenNebula reads it (``Template::from_xml_node``): one text node per value."""
    found: list[tuple[str, object]] = []
    for element in etree.fromstring(template):
        assert len(element.xpath("text()")) <= 1
        found.append((element.tag, {each.tag: each.text for each in element} if len(element) else element.text))
    return found


@given(VALUES, VALUES)
def test_values_come_back_intact(single: str, member: str) -> None:
    assert read(render([("A", single), ("DISK", {"B": member}), ("DISK", {"B": "1"})])) == [
        ("A", single),
        ("DISK", {"B": member}),
        ("DISK", {"B": "1"}),
    ]


def test_empty_values_are_left_out() -> None:
    assert read(render([("A", ""), ("B", {"C": ""}), ("D", "1")])) == [("D", "1")]


@pytest.mark.parametrize("value", ["a\0b", "\x1b", "\ufffe"])
def test_what_xml_cannot_say_is_refused_and_named(value: str) -> None:
    with pytest.raises(InvalidSpecError, match="CONTEXT/START"):
        render([("CONTEXT", {"START": value})])


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match="a b"):
        render([("a b", "1")])


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(lambda name: name != "-")


@given(NAMES, NAMES, NAMES, NAMES, st.one_of(NAMES, st.just("")))
def test_a_label_names_the_owner_to_its_cloud_site_alone(
    ours: str, site: str, namespace: str, worker: str, pool: str
) -> None:
    owner = Owner(namespace, worker, "1-2-3", pool)
    labels = f"of the user, {Ownership(ours, site).label(owner)} ,more/of/it"
    assert Ownership(ours, site).read_owner(labels) == owner
    assert Ownership(f"{ours}x", site).read_owner(labels) is None
    assert Ownership(ours, f"{site}x").read_owner(labels) is None
