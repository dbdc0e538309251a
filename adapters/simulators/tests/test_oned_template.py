# SPDX-License-Identifier: Apache-2.0
"""oned's template language: what is read as what, what fails, and how templates are merged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simyard_simulators.oned.template import Template, TemplateError, Value, parse
from simyard_simulators.oned.variables import VariableError, substitute

NAMES = st.text("ABCXYZ_019", min_size=1)
VALUES = st.text().filter(lambda value: "]]>" not in value and not value.endswith("\\") and '\\"' not in value)


def quoted(attributes: dict[str, Value]) -> str:
    """Attributes in the string form."""
    lines = []
    for name, value in attributes.items():
        if isinstance(value, str):
            lines.append(f"{name}={quote(value)}")
        else:
            lines.append(f"{name}=[{','.join(f'{key}={quote(inner)}' for key, inner in value.items())}]")
    return "\n".join(lines)


def quote(value: str) -> str:
    return '"' + value.replace('"', '\\"') + '"'


@given(st.dictionaries(NAMES, VALUES | st.dictionaries(NAMES, VALUES, min_size=1)))
def test_what_is_quoted_right_is_read_as_it_was(attributes: dict[str, Value]) -> None:
    assert dict(parse(quoted(attributes)).items()) == attributes


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("A=1", {"A": "1"}),
        ("a = word # the rest is a comment\n", {"A": "word"}),
        ('A="two words"\nB="a \\"quote\\""', {"A": "two words", "B": 'a "quote"'}),
        ('A="over\nlines"', {"A": "over\nlines"}),
        ('A="x"y"', {"A": '"x"y"'}),
        ("A=\nB=2", {"A": "", "B": "2"}),
        ('V=[a="1", B = 2,\n C="3"]', {"V": {"A": "1", "B": "2", "C": "3"}}),
        ('V=[A="1",A="2"]', {"V": {"A": "1"}}),
        ("V=[]", {"V": {}}),
        ("<T><A>1</A><V><X>a</X><Y/></V></T>", {"A": "1", "V": {"X": "a", "Y": ""}}),
    ],
)
def test_templates_are_read(source: str, expected: dict[str, str | dict[str, str]]) -> None:
    assert dict(parse(source).items()) == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("A", "Parse error: syntax error, unexpected $end, expecting EQUAL or EQUAL_EMPTY at line 0, columns 1:1"),
        # as OpenNebula/one#4269 reports it
        (
            'A=1\nSCHED_REQUIREMENTS="CLUSTER_ID="102" | CLUSTER_ID="101""\n',
            "Parse error: syntax error, unexpected VARIABLE, expecting EQUAL or EQUAL_EMPTY at line 1",
        ),
        ("A=", "unexpected $end, expecting OBRACKET or CCDATA or STRING"),
        ("V=[A=1 B=2]", "unexpected VARIABLE, expecting COMMA or CBRACKET"),
        ('A="ends in a backslash\\"\nB="2"', "unexpected $end, expecting EQUAL or EQUAL_EMPTY at line 1"),
        ('A="x ]]> y"', "Parse error."),
        ("<T><A>", "Parse error: XML Template malformed."),
    ],
)
def test_what_cannot_be_read_is_said_as_oned_says_it(source: str, message: str) -> None:
    with pytest.raises(TemplateError) as refusal:
        parse(source)
    assert message in str(refusal.value)


def test_merging_replaces_every_attribute_of_a_name_whole() -> None:
    template = parse('CONTEXT=[NETWORK="YES",KEY="old"]\nDISK=[ID="1"]\nDISK=[ID="2"]\nCPU="1"')
    template.merge(parse('CONTEXT=[OWN="x"]\nDISK=[ID="3"]'))
    assert template.vectors("CONTEXT") == [{"OWN": "x"}]
    assert template.vectors("DISK") == [{"ID": "3"}]
    assert template.get("CPU") == "1"


@given(st.text())
def test_xml_of_a_template_carries_any_value_that_xml_can(value: str) -> None:
    carried = "".join(character for character in value if character >= " " and character.isprintable())
    xml = Template([("A", carried), ("V", {"X": carried})]).to_xml("T")
    assert dict(parse(xml).items()) == {"A": carried, "V": {"X": carried}}


def test_values_come_as_cdata() -> None:
    xml = Template([("A", "1 < 2"), ("B", ""), ("C", "]]>"), ("V", {"X": '"'})]).to_xml("T")
    assert xml == (
        "<T><A><![CDATA[1 < 2]]></A><B><![CDATA[]]></B><C><![CDATA[]]]]><![CDATA[>]]></C>"
        '<V><X><![CDATA["]]></X></V></T>'
    )


def single(name: str) -> str:
    return {"NAME": "vm-1", "UID": "2"}.get(name, "")


def inner(name: str, key: str, chosen_by: str, wanted: str) -> str:
    return f"<{name}.{key} of {chosen_by}={wanted}>"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("no variable", "no variable"),
        ("$NAME", "vm-1"),
        ("a $name-$UID.", "a vm-1-2."),
        ("$UNKNOWN!", "!"),
        ("\\$NAME", "\\$NAME"),
        ("$NIC[IP]", "<NIC.IP of =>"),
        ('$NIC[IP, NETWORK="x y"]', "<NIC.IP of NETWORK=x y>"),
    ],
)
def test_variables_in_context_are_replaced(value: str, expected: str) -> None:
    assert substitute(value, single, inner) == expected


@pytest.mark.parametrize("value", ["$(hostname)", "cost: 5$", "${NAME}", "$NAME, hello", "export HOME=$HOME\nls"])
def test_a_shell_script_in_plain_text_is_an_error(value: str) -> None:
    with pytest.raises(VariableError, match="syntax error, unexpected"):
        substitute(value, single, inner)
