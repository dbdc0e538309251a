# SPDX-License-Identifier: Apache-2.0
"""The request with which a worker receives an action. Pure."""

from __future__ import annotations

from simyard.api.service_action import ServiceAction
from simyard.plan.actions import find_declared_action, get_timeout_seconds
from simyard.plan.service import PublishedService
from simyard_adapter.declarations import ActionMode, Json
from simyard_adapter.file_urls import AllowedUrls


def build_action_request(action: ServiceAction, service: PublishedService | None, urls: AllowedUrls) -> dict[str, Json]:
    """Return the body of the request; ``urls`` are the URLs that file parameters may have."""
    body: dict[str, Json] = {
        "action": action.spec.action,
        "parameters": action.spec.parameters,
        "mode": ActionMode.ASYNC.value,
        **urls.to_json(),
    }
    if (declared := find_declared_action(action, service)) is not None:
        body["timeoutSeconds"] = get_timeout_seconds(action, declared)
    return body
