# SPDX-License-Identifier: Apache-2.0
"""docs/limits.md says the figures that hold."""

from __future__ import annotations

from pathlib import Path

from simyard.fleet.actions.retention import ActionLimits
from simyard.guest.messages import MAX_ERROR_CHARACTERS, MAX_PROGRESS_CHARACTERS
from simyard.guest.reading import MAX_CONTAINERS
from simyard.messaging.window import WindowSettings
from simyard.plan.actions import MAX_CLOCK_SKEW_SECONDS
from simyard.plan.queued_action import MAX_STORED_BYTES
from simyard_adapter.action_logs import MAX_ACTION_LOG_BYTES
from simyard_adapter.limits import (
    KIB,
    MAX_ATTRIBUTES_BYTES,
    MAX_BROKER_MESSAGE_BYTES,
    MAX_DEPTH,
    MAX_LOG_BYTES,
    MAX_LOG_PARTS,
    MAX_RESULT_BYTES,
    MAX_VALUE_BYTES,
    MIB,
)

DOCUMENT = Path(__file__).parents[3] / "docs" / "limits.md"


def test_the_figures_of_the_document_are_those_that_hold() -> None:
    rows = [line.split("|")[1:3] for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")]
    limits = ActionLimits()
    figures = {name.strip(): figure.strip() for name, figure in rows}
    assert figures == {
        "limit": "figure",
        "levels of arrays and objects in a message": str(MAX_DEPTH),
        "arrays and objects in a message": f"{MAX_CONTAINERS:,}",
        "value of one attribute, as JSON": f"{MAX_VALUE_BYTES // KIB} KiB",
        "all attributes of a worker, as JSON": f"{MAX_ATTRIBUTES_BYTES // KIB} KiB",
        "result of an action, as JSON": f"{MAX_RESULT_BYTES // MIB} MiB",
        "any message, at the broker (`max_message_size`)": f"{MAX_BROKER_MESSAGE_BYTES // KIB:,} KiB",
        "log in one reply, as JSON": f"{MAX_LOG_BYTES // MIB} MiB",
        "log of an Async action": f"{MAX_ACTION_LOG_BYTES // MIB} MiB in {MAX_LOG_PARTS} stored parts",
        "message of progress": f"{MAX_PROGRESS_CHARACTERS:,} characters",
        "message of an error": f"{MAX_ERROR_CHARACTERS:,} characters",
        "difference of a worker's clock": f"{MAX_CLOCK_SKEW_SECONDS:.0f} s",
        "unfinished ServiceActions of one namespace": f"{limits.unfinished:,}",
        "their size together": f"{limits.unfinished_mib} MiB",
        "finished ServiceActions of one namespace": f"{limits.finished:,}",
        "the size of these together": f"{limits.finished_mib} MiB",
    }
    window = WindowSettings()
    assert f"at most {MAX_STORED_BYTES / MIB} MiB (etcd's limit" in DOCUMENT.read_text()
    product = (limits.unfinished + limits.finished) * MAX_STORED_BYTES
    assert f"would permit {product // 1024**3} GiB" in DOCUMENT.read_text()
    assert f"at most about {limits.unfinished_mib + limits.finished_mib} MiB of etcd" in DOCUMENT.read_text()
    setting = f"max_message_size = {MAX_BROKER_MESSAGE_BYTES}"
    assert setting in DOCUMENT.read_text()
    assert setting in (DOCUMENT.parents[1] / "charts/simyard/templates/_helpers.tpl").read_text()
    assert f"({window.deliveries:,} events, {window.held_bytes // MIB} MiB)" in DOCUMENT.read_text()
