"""``.../actions/{action}``: call an action and wait, or have it recorded as a ServiceAction."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime

from simyard.api.base import Json
from simyard.api.names import (
    ANNOTATION_REQUESTED_BY,
    LABEL_POOL,
    LABEL_SERVICE,
    SERVICE_ACTIONS,
    SUBRESOURCES_API_VERSION,
)
from simyard.apiserver.asking import ask
from simyard.apiserver.broker import BrokerLink
from simyard.apiserver.directory import Directory
from simyard.apiserver.discovery import ACTION_RESULT
from simyard.apiserver.frontproxy import Identity
from simyard.apiserver.inputs import flag, read_parameters
from simyard.apiserver.objects import CachedPool, CachedService, CachedWorker, Target, timestamp
from simyard.apiserver.routes import Call
from simyard.apiserver.status import StatusError, StatusReason, from_api, invalid_values, undeclared
from simyard.kube.client import KubeClient
from simyard.kube.errors import ApiError
from simyard_adapter.declarations import Action, ActionMode, InvalidValuesError, check_values
from simyard_adapter.declarations import Json as Value
from simyard_adapter.wire import Request

SYNC_SECONDS = 30
"""How long a caller waits; kube-apiserver cuts a request after 60 s."""
REMEDY = "call it with ?wait=false and read the result from the ServiceAction"


class Actions:
    """Calls actions on behalf of users who may."""

    def __init__(self, client: KubeClient, directory: Directory, broker: BrokerLink) -> None:
        self._client = client
        self._directory = directory
        self._broker = broker

    async def call(
        self, call: Call, query: Mapping[str, str], body: bytes, content_type: str, identity: Identity
    ) -> tuple[int, Json]:
        """Answer with the status code and an ActionResult (200), or the ServiceAction that keeps the call (202).

        Raises:
            StatusError: nothing was sent, or there is no result; see :mod:`simyard.apiserver.status`.
        """
        target = await self._directory.target(call)
        service = await self._directory.service_of(target)
        action = service.interface.action(call.path[1])
        if action is None:
            declared = [item.name for item in service.interface.actions]
            raise undeclared(target.subject, "action", call.path[1], declared)
        if "dryRun" in query:
            problem = "dryRun: an action cannot be tried without effect"
            raise StatusError(StatusReason.BAD_REQUEST, problem, subject=target.subject)
        wait = flag(query, "wait", True) and action.mode is ActionMode.SYNC
        given = read_parameters(body, content_type, target.subject)
        try:
            parameters = check_values(given, action.parameters, "parameters")
        except InvalidValuesError as error:
            raise invalid_values(target.subject, error) from None
        if wait:
            return 200, await self._wait(target, action, parameters)
        recorded = service_action(target, action.name, parameters, identity.user, secrets.token_hex(4))
        try:
            return 202, await self._client.create(SERVICE_ACTIONS, recorded, target.metadata.namespace)
        except ApiError as error:
            raise from_api(target.subject, error) from error

    async def _wait(self, target: Target, action: Action, parameters: Mapping[str, Value]) -> Json:
        called = datetime.now(UTC)
        reply = await ask(
            self._broker,
            target.subject,
            self._directory.destination(target),
            Request.ACTION,
            {
                "action": action.name,
                "parameters": dict(parameters),
                "mode": ActionMode.SYNC.value,
                "timeoutSeconds": min(action.timeout_seconds, SYNC_SECONDS),
            },
            timeout_seconds=SYNC_SECONDS,
            message_id=uuid.uuid4().hex,
            timeout_message=f'action "{action.name}" has not finished within {SYNC_SECONDS} s: {REMEDY}',
        )
        return action_result(target, reply, called)


def action_result(target: Target, reply: Mapping[str, Value], called: datetime) -> Json:
    """The ActionResult for an adapter's reply."""
    return {
        "apiVersion": SUBRESOURCES_API_VERSION,
        "kind": ACTION_RESULT,
        "metadata": {
            "name": target.metadata.name,
            "namespace": target.metadata.namespace,
            "creationTimestamp": timestamp(called),
        },
        "worker": target.metadata.name if isinstance(target, CachedWorker) else reply.get("worker") or "",
        "seconds": reply.get("seconds"),
        "result": reply.get("result") or {},
    }


def service_action(target: Target, action: str, parameters: Mapping[str, Value], user: str, suffix: str) -> Json:
    """The ServiceAction that records a call; its name is that of the target, the action and ``suffix``."""
    labels: dict[str, str] = {}
    match target:
        case CachedWorker():
            labels = {LABEL_SERVICE: target.service} | ({LABEL_POOL: target.pool} if target.pool else {})
        case CachedPool():
            labels = {LABEL_SERVICE: target.service, LABEL_POOL: target.metadata.name}
        case CachedService():
            labels = {LABEL_SERVICE: target.metadata.name}
    return {
        "apiVersion": SERVICE_ACTIONS.api_version,
        "kind": SERVICE_ACTIONS.kind,
        "metadata": {
            "name": f"{target.metadata.name}-{action.replace('_', '-')}-{suffix}",
            "namespace": target.metadata.namespace,
            "labels": labels,
            "annotations": {ANNOTATION_REQUESTED_BY: user},
        },
        "spec": {
            "target": {"kind": target.subject.resource.kind, "name": target.metadata.name},
            "action": action,
            "parameters": dict(parameters),
        },
    }
