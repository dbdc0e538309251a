"""What a client sent, in any rendering, as a :class:`Draft`. Linear in the length of the input, and bounded."""

from __future__ import annotations

from collections.abc import Sequence

from simyard.occi.errors import OcciError
from simyard.occi.json_parsing import draft_of_json
from simyard.occi.model import Draft, Model
from simyard.occi.negotiation import Rendering, charset
from simyard.occi.text_parsing import body_fields, draft_of_fields, draft_of_uris, header_fields

MOST_HEADER_BYTES = 64 * 1024
MOST_BODY_BYTES = 1024 * 1024


def parse(rendering: Rendering, headers: Sequence[tuple[str, str]], body: bytes, model: Model) -> Draft:
    """The draft of a request.

    Of ``headers``, text/occi is read from Category, Link, X-OCCI-Attribute and X-OCCI-Location (or with ``_``); the
    others only from a charset in Content-Type. The model says the types of values, and the class of a Category that
    has none. Filters of a GET are ``parse(Rendering.TEXT_OCCI, headers, b"", model)``.

    Raises:
        OcciError: 400 or 413, what cannot be read and where.
    """
    if len(body) > MOST_BODY_BYTES:
        raise OcciError(413, f"the body has {len(body)} bytes; at most {MOST_BODY_BYTES} are accepted")
    match rendering:
        case Rendering.TEXT_OCCI:
            return draft_of_fields(header_fields(_checked(headers)), model)
        case Rendering.JSON:
            return draft_of_json(body, model)
        case Rendering.URI_LIST:
            return draft_of_uris(_decoded(headers, body))
        case Rendering.TEXT_PLAIN:
            return draft_of_fields(body_fields(_decoded(headers, body)), model)


def _checked(headers: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    size = 0
    for name, value in headers:
        try:
            size += len(name) + len(value.encode())
        except UnicodeEncodeError:
            raise OcciError(400, f"header {name}: is not UTF-8") from None
    if size > MOST_HEADER_BYTES:
        raise OcciError(413, f"the headers have {size} bytes; at most {MOST_HEADER_BYTES} are accepted")
    return headers


def _decoded(headers: Sequence[tuple[str, str]], body: bytes) -> str:
    declared = next((value for name, value in headers if name.lower().replace("_", "-") == "content-type"), None)
    try:
        return body.decode(charset(declared))
    except UnicodeDecodeError as error:
        raise OcciError(400, f"the body is not {error.encoding}: {error.reason} at byte {error.start}") from None
