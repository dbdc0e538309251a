# SPDX-License-Identifier: Apache-2.0
"""Text of strangers tells a terminal nothing."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simyard.guest.text import make_printable, make_printable_line, make_printable_value

CONTROLS = st.text(alphabet="\x1b[]\x07\x9b\x9d\x9c\\0;mPX^_a\r\n\t\x00\u202e\u2066\ud800é")


@given(st.text() | CONTROLS)
@example("\x1b\x1b[m[31mred")
@example("\x1b]\x1b]0;a\x07b")
def test_no_control_is_left(text: str) -> None:
    for character in make_printable(text):
        assert character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cs"), repr(character)
        assert unicodedata.bidirectional(character) not in (
            "RLE",
            "LRE",
            "RLO",
            "LRO",
            "PDF",
            "RLI",
            "LRI",
            "FSI",
            "PDI",
        )
    assert make_printable(make_printable(text)) == make_printable(text)
    assert "\n" not in make_printable_line(text)


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_other_text_stays_as_it_is(text: str) -> None:
    assert make_printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;owned\x07title", "title"),
        ("\x1b]52;c;ZXZpbA==\x1b\\clipboard", "clipboard"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b[31;1mred\x1b[0m", "red"),
        ("\x9b2Jcleared", "cleared"),
        ("50 %\r100 %\r\ndone", "50 %\n100 %\ndone"),
        ("bell\x07 nul\x00 rtl\u202etxt.exe", "bell nul rtltxt.exe"),
        ("cut \x1b]0;never ended", "cut ]0;never ended"),
        ("step 3\tof 4", "step 3\tof 4"),
    ],
)
def test_sequences_are_removed_whole(text: str, shown: str) -> None:
    assert make_printable(text) == shown


def test_values_are_cleaned_everywhere() -> None:
    value = {"a\x1b[m": ["x\x07", {"b": "\u202ey"}, 1.5, None, True]}
    assert make_printable_value(value) == {"a": ["x", {"b": "y"}, 1.5, None, True]}
