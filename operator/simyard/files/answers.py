# SPDX-License-Identifier: Apache-2.0
"""Answers of an S3 server, and the reading of their headers and XML. Pure.

Every function raises a ValueError for an answer that it cannot read.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the store. The names of ``headers`` have small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def read_document(self) -> Element:
        """Return the root of the XML document in the body."""
        return read_document(self.body)

    def read_time(self, header: str) -> datetime:
        """Return the time in a header."""
        text = self.headers.get(header, "")
        try:
            return datetime.strptime(text, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
        except ValueError:
            raise ValueError(f"the header {header} has no time, but {text[:100]!r}") from None

    def read_error(self) -> str:
        """Return the code and the message of an S3 error; empty if the body has none."""
        try:
            document = self.read_document()
        except ValueError:
            return ""
        return f"{document.find_text('Code')}: {document.find_text('Message')}"


@dataclass(frozen=True, slots=True)
class Element:
    """An element of XML, whose children are found by their names without a namespace."""

    tree: ElementTree.Element

    def list_children(self, name: str) -> list[Element]:
        """Return the children with a name."""
        return [Element(item) for item in self.tree if item.tag.rpartition("}")[2] == name]

    def find_text(self, name: str) -> str:
        """Return the text of the first child with a name; empty if there is none."""
        return next((item.tree.text or "" for item in self.list_children(name)), "")

    def read_text(self, name: str) -> str:
        """Return the text of a child that must be there."""
        if not (text := self.find_text(name)):
            raise ValueError(f"the element {name} is missing")
        return text

    def read_number(self, name: str) -> int:
        """Return the number in a child."""
        return int(self.read_text(name))

    def read_time(self, name: str) -> datetime:
        """Return the time in a child; a time without a zone is in UTC."""
        found = datetime.fromisoformat(self.read_text(name).replace("Z", "+00:00"))
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)

    def read_next(self, name: str, marker: str) -> str:
        """Return the marker of the page after the one that began at ``marker``; empty if this page is the last."""
        if self.find_text("IsTruncated") != "true":
            return ""
        if (following := self.read_text(name)) == marker:
            raise ValueError(f"the next page begins where this page begins: {name}")
        return following


def read_document(body: bytes) -> Element:
    """Return the root of an XML document."""
    try:
        return Element(ElementTree.fromstring(body))  # noqa: S314 - the platform team's own store; bounded answers
    except ElementTree.ParseError as error:
        raise ValueError(f"no readable XML: {error}") from None
