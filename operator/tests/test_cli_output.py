# SPDX-License-Identifier: Apache-2.0
"""Untrusted text is printed without control sequences for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import click
import pytest
from click.testing import CliRunner

from simyard.cli.app import cli
from simyard.cli.kubectl import Kubectl, KubectlError
from simyard.cli.output import Failure, print_object, print_table, say
from simyard_sites.kubernetes.resource import Resource

EVIL = "\x1b]0;owned\x07\x1b[2Ja\u202eb\x00\rc\x9b1md"
CLEAN = "ab\ncd"


@dataclass(frozen=True)
class Told(Kubectl):
    """A cluster in which a worker logs control sequences."""

    def stream_subresource(self, resource: Resource, name: str, path: str) -> Iterator[str]:
        yield f"{EVIL}\n"


def test_the_log_of_a_worker_is_safe_to_print() -> None:
    result = CliRunner().invoke(cli, ["logs", "w"], obj=Told())
    assert (result.output, result.exit_code) == (f"{CLEAN}\n", 0)


def test_all_output_is_cleaned(capsys: pytest.CaptureFixture[str]) -> None:
    say(EVIL, err=True)
    assert capsys.readouterr().err == f"{CLEAN}\n"
    print_table(["A", "B"], [[EVIL, 1], ["x", {"k": EVIL}]])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3, "nobody adds a row to a table"
    assert lines[1].startswith("ab cd")
    for output in ("json", "yaml"):
        print_object({"text": EVIL}, output)
        assert all(character.isprintable() or character == "\n" for character in capsys.readouterr().out)


@pytest.mark.parametrize("error", [Failure(EVIL), KubectlError(EVIL, 1)])
def test_errors_are_cleaned(error: click.ClickException, capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def fail() -> None:
        raise error

    result = CliRunner().invoke(fail)
    assert CLEAN in result.output
    assert result.exit_code == 1
