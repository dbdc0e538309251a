# SPDX-License-Identifier: Apache-2.0
"""Texts of others run no code in a notebook and control no terminal."""

from __future__ import annotations

import io
import sys

import pytest

from simyard_client.display import MAX_SHOWN_ROWS, Progress, Table
from simyard_client.interface import Interface
from simyard_client.results import Result


def test_html_is_escaped() -> None:
    table = Table(("<b>",), [("<script>alert(1)</script>",)], {"<b>": "<i>"})
    shown = table._repr_html_()
    assert "<script>" not in shown
    assert "&lt;b&gt; (&lt;i&gt;)" in shown
    assert "<script>" not in Result({"<script>": "<script>"})._repr_html_()
    interface = Interface.from_json({"actions": [{"name": "a", "description": "x", "parameters": [
        {"name": "p", "type": "string", "description": "<script>"}]}]})  # fmt: skip
    assert "<script>" not in interface._repr_html_()


def test_a_terminal_is_not_controlled() -> None:
    assert "\x1b" not in str(Table(("a",), [("\x1b[2J\u202e",)]))


def test_a_long_table_is_cut() -> None:
    table = Table(("a",), [(n,) for n in range(MAX_SHOWN_ROWS + 5)])
    assert "5 more rows" in str(table)
    assert "5 more rows" in table._repr_html_()
    assert len(table) == MAX_SHOWN_ROWS + 5


def test_a_table_is_a_sequence_of_rows() -> None:
    table = Table(("a", "b"), [(1, "x"), (2, None)], {"a": "mm"})
    assert list(table) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    assert table[1]["a"] == 2
    assert table[:1].get_column("b") == ["x"]
    assert table.to_pandas()["a"].tolist() == [1, 2]


def test_a_bar_is_shown_only_if_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, shown in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        with Progress("calls", 3) as bar:
            bar.add(1)
            bar.set(3, 3, "done")
        assert ("calls" in stream.getvalue()) is shown
