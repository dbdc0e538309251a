# SPDX-License-Identifier: Apache-2.0
"""Builds the text of templates, so that OpenNebula reads all values of attributes correctly.

OpenNebula accepts a template in its own syntax or in XML (``Template::parse_str_or_xml``). Its own syntax cannot
express every value. XML can, if each value is one text node: a second node, such as a split CDATA section, makes
OpenNebula drop the attribute (``Template::single_xml_att``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from xml.sax.saxutils import escape

from simyard_sites.base import InvalidSpecError

Vector = Mapping[str, str]
Value = str | Vector
Attributes = Iterable[tuple[str, Value]]
"""The names and values in order; a name may occur several times (``DISK``, ``NIC``)."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_KEPT = {"\r": "&#13;", "\n": "&#10;", "\t": "&#9;"}


def render(attributes: Attributes) -> str:
    """Return the attributes as an XML template. Empty values are omitted, because OpenNebula has none.

    Raises:
        InvalidSpecError: A name or value is not possible in a template.
    """
    return f"<TEMPLATE>{''.join(_attribute(name, value) for name, value in attributes)}</TEMPLATE>"


def _attribute(name: str, value: Value) -> str:
    if isinstance(value, str):
        return _element(name, _text(name, value)) if value else ""
    members = "".join(_element(key, _text(f"{name}/{key}", each)) for key, each in value.items() if each)
    return _element(name, members) if members else ""


def _element(name: str, content: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidSpecError(
            f"the template attribute {name!r}: a name may only contain letters, digits, '_', '-' and '.'"
        )
    return f"<{name}>{content}</{name}>"


def _text(path: str, value: str) -> str:
    if unfit := _UNFIT.search(value):
        raise InvalidSpecError(
            f"the template attribute {path}: the character {unfit.group()!r} is not possible in XML; remove it"
        )
    return escape(value, _KEPT)
