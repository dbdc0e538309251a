"""``.../actions/{action}``: call an action and wait, or have it recorded as a ServiceAction."""

from __future__ import annotations

import hashlib
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
from simyard.api.weights import excess
from simyard.apiserver.asking import ask
from simyard.apiserver.broker import BrokerLink
from simyard.apiserver.directory import Destination, Directory
from simyard.apiserver.discovery import ACTION_RESULT
from simyard.apiserver.frontproxy import Identity
from simyard.apiserver.inputs import flag, read_parameters
from simyard.apiserver.objects import CachedPool, CachedService, CachedWorker, Target, timestamp
from simyard.apiserver.routes import Call
from simyard.apiserver.status import StatusError, StatusReason, from_api, invalid_reply, invalid_values, undeclared
from simyard.guest.messages import Reply
from simyard.guest.values import InvalidResultError
from simyard_adapter.declarations import Action, ActionMode, InvalidValueError, InvalidValuesError, check_values
from simyard_adapter.declarations import Json as Value
from simyard_adapter.wire import Reason as WireReason
from simyard_adapter.wire import Request
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import AlreadyExistsError, ApiError

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
        action = _declared(target, service, call.path[1])
        if "dryRun" in query:
            problem = "dryRun: an action cannot be tried without effect"
            raise StatusError(StatusReason.BAD_REQUEST, problem, subject=target.subject)
        wait = flag(query, "wait", True)
        given = read_parameters(body, content_type, target.subject)
        return await self.invoke(target, service, action.name, given, identity.user, wait=wait)

    async def invoke(
        self,
        target: Target,
        service: CachedService,
        name: str,
        given: Mapping[str, Value],
        user: str,
        *,
        wait: bool,
        key: str = "",
    ) -> tuple[int, Json]:
        """Invoke an action of the target's service; answers and errors as for :meth:`call`.

        ``wait`` has no effect on an Async one. What is invoked again with the same ``key`` is carried out once.
        """
        action = _declared(target, service, name)
        try:
            parameters = check_values(given, action.parameters, "parameters")
        except InvalidValuesError as error:
            raise invalid_values(target.subject, error) from None
        if too_large := excess(parameters):
            raise invalid_values(target.subject, InvalidValuesError([InvalidValueError("parameters", too_large)]))
        if wait and action.mode is ActionMode.SYNC:
            return 200, await self._wait(target, action, parameters, key or uuid.uuid4().hex)
        suffix = hashlib.sha256(key.encode()).hexdigest()[:16] if key else secrets.token_hex(4)
        recorded = service_action(target, action.name, parameters, user, suffix)
        namespace = target.metadata.namespace
        try:
            try:
                return 202, await self._client.create(SERVICE_ACTIONS, recorded, namespace)
            except AlreadyExistsError:
                if not key:
                    raise
                return 202, await self._client.get(SERVICE_ACTIONS, recorded["metadata"]["name"], namespace)
        except ApiError as error:
            raise from_api(target.subject, error) from error

    async def _wait(self, target: Target, action: Action, parameters: Mapping[str, Value], message_id: str) -> Json:
        called = datetime.now(UTC)
        destination = self._directory.destination(target)
        reply = await ask(
            self._broker,
            target.subject,
            destination,
            Request.ACTION,
            {
                "action": action.name,
                "parameters": dict(parameters),
                "mode": ActionMode.SYNC.value,
                "timeoutSeconds": min(action.timeout_seconds, SYNC_SECONDS),
            },
            timeout_seconds=SYNC_SECONDS,
            message_id=message_id,
            timeout_message=f'action "{action.name}" has not finished within {SYNC_SECONDS} s: {REMEDY}',
        )
        return action_result(target, destination, action, reply, called)


def _declared(target: Target, service: CachedService, name: str) -> Action:
    action = service.interface.action(name)
    if action is None:
        declared = [item.name for item in service.interface.actions]
        raise undeclared(target.subject, "action", name, declared)
    return action


def action_result(target: Target, destination: Destination, action: Action, reply: Reply, called: datetime) -> Json:
    """The ActionResult for an adapter's reply.

    Raises:
        StatusError: 502, the result is not what the service declares, or the reply names a worker of somebody else.
    """
    worker = destination.worker or reply.worker
    if not destination.includes(worker):
        problem = "the reply does not name a worker of the pool that was asked"
        raise invalid_reply(target.subject, WireReason.INVALID_RESULT.value, problem, "worker")
    try:
        result = reply.result.checked(action)
    except InvalidResultError as invalid:
        error = invalid.error
        raise invalid_reply(target.subject, error.reason.value, error.message, error.field) from None
    return {
        "apiVersion": SUBRESOURCES_API_VERSION,
        "kind": ACTION_RESULT,
        "metadata": {
            "name": target.metadata.name,
            "namespace": target.metadata.namespace,
            "creationTimestamp": timestamp(called),
        },
        "worker": worker,
        "seconds": reply.seconds,
        "result": result,
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
