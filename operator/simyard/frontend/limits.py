"""How long texts may be, as the objects that keep them limit them: refused in OCCI's words, before anything is made."""

from __future__ import annotations

from collections.abc import Mapping

from simyard.frontend.computes import HOSTNAME, SSH_PUBLIC_KEY
from simyard.occi.errors import OcciError
from simyard.occi.model import SUMMARY, TARGET, TITLE, Mixin

MOST_CHARACTERS: Mapping[str, int] = {TITLE: 256, SUMMARY: 1024, HOSTNAME: 253, "occi.compute.userdata": 65_536}
"""Of a compute (Worker)."""
MOST_OF_LINKS: Mapping[str, int] = {TITLE: 1024, TARGET: 2048}
MOST_KEYS, MOST_KEY_CHARACTERS = 16, 8192
MOST_OF_MIXINS: Mapping[str, int] = {"scheme": 768, "term": 255, "title": 1024, "location": 512}


def check_lengths(texts: Mapping[str, str], most: Mapping[str, int] = MOST_CHARACTERS) -> None:
    """Refuse texts, by the names of their attributes, that are too long.

    Raises:
        OcciError: 400.
    """
    for name, text in texts.items():
        if len(text) > most[name]:
            raise OcciError(400, f"attribute {name}: has {len(text)} characters; at most {most[name]} are kept")


def check_keys(keys: list[str]) -> None:
    """Refuse keys that are too many or too long.

    Raises:
        OcciError: 400.
    """
    if len(keys) > MOST_KEYS:
        raise OcciError(400, f"attribute {SSH_PUBLIC_KEY}: has more than {MOST_KEYS} keys")
    if any(len(key) > MOST_KEY_CHARACTERS for key in keys):
        raise OcciError(400, f"attribute {SSH_PUBLIC_KEY}: a key has more than {MOST_KEY_CHARACTERS} characters")


def check_definition(mixin: Mixin) -> None:
    """Refuse a mixin that cannot be kept as it is.

    Raises:
        OcciError: 400.
    """
    texts = {"scheme": mixin.scheme, "term": mixin.term, "title": mixin.title, "location": mixin.location}
    for name, text in texts.items():
        if len(text) > MOST_OF_MIXINS[name]:
            problem = f"its {name} has {len(text)} characters; at most {MOST_OF_MIXINS[name]} are kept"
            raise OcciError(400, f"Category: the mixin {mixin.term[:40]}: {problem}")
