# SPDX-License-Identifier: Apache-2.0
"""The metric of finished ServiceActions."""

from __future__ import annotations

from prometheus_client import Counter

from simyard.api import names
from simyard_adapter import wire

FINISHED = Counter("simyard_service_actions_finished_total", "Finished ServiceActions, by reason.", ["reason"])
for ending in (
    names.Reason.SUCCEEDED,
    names.Reason.TARGET_NOT_FOUND,
    names.Reason.TOO_MANY_ACTIONS,
    names.Reason.WORKER_LOST,
    wire.ErrorReason.UNKNOWN_ACTION,
    wire.ErrorReason.INVALID_PARAMETERS,
    wire.ErrorReason.ACTION_FAILED,
    wire.ErrorReason.CONNECTOR_CRASHED,
    wire.ErrorReason.TIMED_OUT,
    wire.ErrorReason.CANCELLED,
    wire.ErrorReason.INTERRUPTED,
    wire.ErrorReason.RESULT_TOO_LARGE,
    wire.ErrorReason.INVALID_RESULT,
    wire.ErrorReason.FILE_TRANSFER_FAILED,
):
    FINISHED.labels(ending.value)  # a counter whose first value is 1 shows no increase
