# SPDX-License-Identifier: Apache-2.0
"""Values of file parameters on the command line."""

import click
import pytest

from simyard.cli.files import make_reference
from simyard.cli.kubectl import Kubectl

ADDRESS = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (ADDRESS, {"file": ADDRESS}),
        (f"files:{ADDRESS}", {"file": ADDRESS}),
        ("https://data.example.com/a.inp?v=1", {"url": "https://data.example.com/a.inp?v=1"}),
        ("http://data.example.com/a.inp", {"url": "http://data.example.com/a.inp"}),  # the API server refuses it
    ],
)
def test_an_address_and_a_url_name_a_file(text: str, value: dict[str, str]) -> None:
    assert make_reference(Kubectl(), text) == value


def test_another_text_is_refused_with_the_forms_that_there_are() -> None:
    with pytest.raises(click.BadParameter, match=r"write @PATH, the address of a file \(sha256:...\), or a URL"):
        make_reference(Kubectl(), "a.inp")
