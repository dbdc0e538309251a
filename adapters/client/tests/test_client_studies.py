# SPDX-License-Identifier: Apache-2.0
"""Designs and results of studies, and values of parameters, take the forms that the API has."""

from __future__ import annotations

import base64
import csv
import gzip
import io
from pathlib import Path
from typing import Any

import numpy
import pytest
from aiohttp import web
from fake_server import FakeServer

import simyard_client
from simyard_client import Client, Range
from simyard_client.connection import Connection
from simyard_client.files import File, make_parameters, make_values
from simyard_client.kubeconfig import Access, Cluster, User
from simyard_client.studies import make_design
from simyard_client.transfer.file_values import FileReference

CONNECTION = Connection(Access(Cluster("http://127.0.0.1:1"), User()))
ADDRESS = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("values", "axis"),
    [
        ([1, 2.5], {"values": [1, 2.5]}),
        (range(3), {"values": [0, 1, 2]}),
        (numpy.linspace(0, 1, 3), {"values": [0.0, 0.5, 1.0]}),
        (Range(1, 2.5, step=0.1), {"start": 1, "stop": "2.5", "step": "0.1"}),
        (Range(1, 1e12, count=4, log=True), {"start": 1, "stop": "1000000000000.0", "count": 4, "scale": "Log"}),
    ],
)
def test_an_axis_has_values_or_a_range(values: Any, axis: dict[str, Any]) -> None:
    design = make_design(CONNECTION, {"length": values}, "grid", None, 0)
    assert design == {"grid": {"axes": [{"name": "length", **axis}]}}


def test_samples_and_points() -> None:
    axes = [{"name": "a", "start": 0, "stop": 1}]
    sampled = make_design(CONNECTION, {"a": Range(0, 1)}, "latin-hypercube", 8, 3)
    assert sampled == {"latinHypercube": {"axes": axes, "count": 8, "seed": 3}}
    points = make_design(CONNECTION, [{"a": 1, "b": 2}, {"a": numpy.float64(3), "b": 4}], "grid", None, 0)
    assert points == {"table": {"columns": ["a", "b"], "rows": [[1, 2], [3.0, 4]]}}


@pytest.mark.parametrize(
    ("vary", "design", "message"),
    [
        ({"a": [1]}, "sobol", "needs count"),
        ({"a": [1]}, "other", "is unknown"),
        ([{"a": 1}, {"b": 1}], "grid", "the same parameters"),
    ],
)
def test_a_design_that_cannot_be_is_refused(vary: Any, design: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_design(CONNECTION, vary, design, None, 0)


def test_parameters_are_json() -> None:
    stored = File(CONNECTION, FileReference(ADDRESS, "deck.inp"))
    given = {"a": numpy.int64(1), "b": numpy.arange(2), "c": (1.5, {"d": numpy.float32(2)}), "mesh": stored}
    reference = {"file": ADDRESS, "name": "deck.inp"}
    assert make_parameters(CONNECTION, given, frozenset()) == {
        "a": 1,
        "b": [0, 1],
        "c": [1.5, {"d": 2.0}],
        "mesh": reference,
    }
    url = "https://data.example.com/mesh"
    named = make_parameters(CONNECTION, {"a": ADDRESS, "b": url, "text": ADDRESS}, frozenset({"a", "b"}))
    assert named == {"a": {"file": ADDRESS}, "b": {"url": url}, "text": ADDRESS}
    found = make_values(CONNECTION, {"field": reference, "all": [reference], "other": {"file": 1}})
    assert (found["field"], found["all"], found["other"]) == (stored, [stored], {"file": 1})


def test_a_path_that_cannot_be_read_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(simyard_client.FileError, match="absent: cannot read the file"):
        make_parameters(CONNECTION, {"mesh": str(tmp_path / "absent")}, frozenset({"mesh"}))


def pack(rows: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return gzip.compress(text.getvalue().encode())


def test_results_of_all_chunks_are_one_table(server: FakeServer, client: Client) -> None:
    header = ["index", "parameters.length", "parameters.steps", "result.steps", "result.name", "worker", "error"]
    chunks = {
        "/1": pack([header, ["0", "0.5", "1", "2", "x", "1", ""]]),
        "/2": pack([header, ["1", "1.5", "", "[1]", "true", "w", "no"]]),
    }

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path in chunks:
            return web.Response(body=chunks[request.path])
        parts = [
            {"chunk": number, "bytes": 9, "download": {"method": "GET", "url": f"{server.url}/{number + 1}?a=%2B"}}
            for number in range(2)
        ]
        return web.json_response({"metadata": {}, "items": parts})

    server.answer = answer
    table = client.study("lengths").results()
    assert table.columns == ("index", "length", "parameters.steps", "result.steps", "name", "worker", "error")
    assert [list(row.values()) for row in table] == [
        [0, 0.5, 1, 2, "x", "1", None],
        [1, 1.5, None, [1], True, "w", "no"],
    ]
    assert ("GET", "/1?a=%2B") in server.requests
    chunks["/2"] = chunks["/2"][:20]
    with pytest.raises(simyard_client.FileError, match="chunk 1 arrived damaged"):
        client.study("lengths").results()


def test_results_without_a_file_store_come_with_the_answer(server: FakeServer, client: Client) -> None:
    rows = base64.b64encode(pack([["index", "result.y"], ["0", "2"]])).decode()

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {}, "items": [{"chunk": 0, "bytes": 9, "content": rows}]})

    server.answer = answer
    assert [list(row.values()) for row in client.study("lengths").results()] == [[0, 2]]
