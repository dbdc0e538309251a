# SPDX-License-Identifier: Apache-2.0
"""Rows of chunks: numbers are read, everything else of a worker is refused or counts as failed."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simyard.guest.reading import RefusedError
from simyard.guest.rows import MAX_BYTES, TaskRow, read_rows

HEADER = "index,parameters.x,result.y,result.z,worker,seconds,attempts,reason,error"


def pack(*lines: str) -> bytes:
    return gzip.compress("\n".join((HEADER, *lines, "")).encode())


def test_rows_have_the_wanted_results_in_their_order() -> None:
    rows = read_rows(pack("7,1.5,2,3e1,w,0.1,1,,", '8,"a,b",4,5,w,0.1,1,,'), ["z", "y"])
    assert rows == {7: TaskRow({"x": "1.5"}, (30.0, 2.0)), 8: TaskRow({"x": "a,b"}, (5.0, 4.0))}


@pytest.mark.parametrize("line", ["7,1,2,3,w,0.1,1,ActionFailed,no", "7,1,,3,w,0,1,,", "7,1,nan,3,w,0,1,,", "7,1,inf"])
def test_a_row_with_an_error_or_without_a_finite_number_has_no_results(line: str) -> None:
    assert read_rows(pack(line), ["y"])[7].results is None


@pytest.mark.parametrize(
    "content",
    [
        b"no gzip",
        pack("7,1,2,3,w,0,1,,")[:-9],
        pack("seven,1,2,3,w,0,1,,"),
        gzip.compress(b"\xff\xfe"),
        gzip.compress(b"other,columns\n1,2\n"),
        gzip.compress(b"0" * (MAX_BYTES + 1)),
        b"",
    ],
    ids=["no gzip", "cut", "index", "no text", "other columns", "too long", "empty"],
)
def test_content_of_another_form_is_refused(content: bytes) -> None:
    with pytest.raises(RefusedError):
        read_rows(content, ["y"])


@given(st.binary(max_size=300))
def test_no_content_raises_anything_else(content: bytes) -> None:
    for packed in (content, gzip.compress(content), gzip.compress(HEADER.encode() + b"\n" + content)):
        try:
            read_rows(packed, ["y"])
        except RefusedError:
            continue
