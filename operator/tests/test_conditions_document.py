"""docs/conditions.md explains every reason that users can meet, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from simyard.api.names import Reason
from simyard_adapter import wire

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "conditions.md"
NOT_OF_ACTIONS = {wire.Reason.UNKNOWN_ATTRIBUTE, wire.Reason.DRAINING, wire.Reason.BUSY, wire.Reason.INVALID_REQUEST}
"""A ServiceAction never fails with these: they are answers to other requests, or it is given to another worker."""


def test_every_reason_is_explained() -> None:
    explained = set(re.findall(r"^\| `(\w+)` \|", DOCUMENT.read_text(), re.MULTILINE))
    reasons = {reason.value for reason in Reason} | {
        reason.value for reason in wire.Reason if reason not in NOT_OF_ACTIONS
    }
    assert explained == reasons
