# SPDX-License-Identifier: Apache-2.0
"""Parses requests in any rendering, in linear time. The length of the input is limited."""

from __future__ import annotations

from collections.abc import Sequence

from simyard.occi.errors import OcciError
from simyard.occi.json_parsing import read_json
from simyard.occi.model import Draft, Model
from simyard.occi.negotiation import Rendering, read_charset
from simyard.occi.text_parsing import make_draft, read_body_fields, read_header_fields, read_uri_list

MAX_HEADER_BYTES = 64 * 1024
MAX_BODY_BYTES = 1024 * 1024


def parse(rendering: Rendering, headers: Sequence[tuple[str, str]], body: bytes, model: Model) -> Draft:
    """Return the draft of a request.

    For text/occi, the function reads the headers Category, Link, X-OCCI-Attribute and X-OCCI-Location (or with ``_``).
    For the other renderings, it reads only the charset in Content-Type. The model gives the types of values, and the
    class of a Category that a client sends without its class. ``parse(Rendering.TEXT_OCCI, headers, b"", model)`` reads
    the filters of a GET.

    Raises:
        OcciError: 400 or 413, with the problem and its place.
    """
    if len(body) > MAX_BODY_BYTES:
        raise OcciError(413, f"the body has {len(body)} bytes; at most {MAX_BODY_BYTES} are accepted")
    match rendering:
        case Rendering.TEXT_OCCI:
            return make_draft(read_header_fields(_checked(headers)), model)
        case Rendering.JSON:
            return read_json(body, model)
        case Rendering.URI_LIST:
            return read_uri_list(_decoded(headers, body))
        case Rendering.TEXT_PLAIN:
            return make_draft(read_body_fields(_decoded(headers, body)), model)


def _checked(headers: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    size = 0
    for name, value in headers:
        try:
            size += len(name) + len(value.encode())
        except UnicodeEncodeError:
            raise OcciError(400, f"header {name}: is not UTF-8") from None
    if size > MAX_HEADER_BYTES:
        raise OcciError(413, f"the headers have {size} bytes; at most {MAX_HEADER_BYTES} are accepted")
    return headers


def _decoded(headers: Sequence[tuple[str, str]], body: bytes) -> str:
    declared = next((value for name, value in headers if name.lower().replace("_", "-") == "content-type"), None)
    try:
        return body.decode(read_charset(declared))
    except UnicodeDecodeError as error:
        raise OcciError(400, f"the body is not {error.encoding}: {error.reason} at byte {error.start}") from None
