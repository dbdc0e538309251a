# SPDX-License-Identifier: Apache-2.0
"""Serves the subresource ``actions/{action}``: calls an action and waits, or records the call as a ServiceAction."""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime

from simyard.api.base import Json
from simyard.api.names import (
    ACTION_RESULT,
    ANNOTATION_INLINE_RESULT,
    ANNOTATION_REQUESTED_BY,
    LABEL_POOL,
    LABEL_SERVICE,
    SERVICE_ACTIONS,
    SUBRESOURCES_API_VERSION,
)
from simyard.api.weights import find_excess
from simyard.guest.messages import Reply
from simyard.guest.values import InvalidResultError
from simyard.serving.broker import BrokerClient
from simyard.serving.calls import ResourceCall
from simyard.serving.directory import Destination, Directory
from simyard.serving.identity import Identity
from simyard.serving.inputs import read_flag, read_parameters
from simyard.serving.objects import CachedPool, CachedService, CachedWorker, Target, format_time
from simyard.serving.status import (
    StatusError,
    StatusReason,
    make_invalid_reply_error,
    make_invalid_values_error,
    make_undeclared_error,
    translate_api_error,
)
from simyard.serving.worker_requests import ask
from simyard_adapter.declarations import Action, ActionMode, InvalidValueError, InvalidValuesError, check_values
from simyard_adapter.declarations import Json as Value
from simyard_adapter.file_urls import AllowedUrls
from simyard_adapter.wire import ErrorReason, Request
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import AlreadyExistsError, ApiError

SYNC_SECONDS = 30
"""Maximum time to wait for the result of a Sync action. kube-apiserver ends a request after 60 s."""
REMEDY = "call it with ?wait=false and read the result from the ServiceAction"


class Actions:
    """The caller of actions, for users whose rights are already checked."""

    def __init__(
        self,
        client: KubeClient,
        directory: Directory,
        broker: BrokerClient,
        urls: AllowedUrls,
        *,
        inline_results: bool = False,
        sync_seconds: int = SYNC_SECONDS,
    ) -> None:
        """Create the caller.

        ``urls`` are the URLs that file parameters may have. With ``inline_results``, large results of recorded calls
        stay in their ServiceActions too. ``sync_seconds`` is the time limit for the result of a Sync action.
        """
        self._urls = urls
        self._inline_results = inline_results
        self._sync_seconds = sync_seconds
        self._client = client
        self._directory = directory
        self._broker = broker

    async def call(
        self, call: ResourceCall, query: Mapping[str, str], body: bytes, content_type: str, identity: Identity
    ) -> tuple[int, Json]:
        """Call an action, and return the status code and an ActionResult (200) or a ServiceAction (202).

        Raises:
            StatusError: nothing was sent, or the action has no result; see :mod:`simyard.serving.status`.
        """
        target = await self._directory.find_target(call)
        service = await self._directory.find_service(target)
        action = _declared(target, service, call.path[1])
        if "dryRun" in query:
            problem = "dryRun: an action has effects that cannot be suppressed; remove dryRun from the query"
            raise StatusError(StatusReason.BAD_REQUEST, problem, subject=target.subject)
        wait = read_flag(query, "wait", True)
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
        """Invoke an action of the target's service; results and errors are the same as for :meth:`call`.

        ``wait`` has no effect on an Async action. If invocations have the same ``key``, the action runs once.
        """
        action = _declared(target, service, name)
        try:
            parameters = check_values(given, action.parameters, "parameters", urls=self._urls)
        except InvalidValuesError as error:
            raise make_invalid_values_error(target.subject, error) from None
        if too_large := find_excess(parameters):
            raise make_invalid_values_error(
                target.subject, InvalidValuesError([InvalidValueError("parameters", too_large)])
            )
        if wait and action.mode is ActionMode.SYNC:
            return 200, await self._wait(target, action, parameters, key or uuid.uuid4().hex)
        suffix = hashlib.sha256(key.encode()).hexdigest()[:16] if key else secrets.token_hex(4)
        recorded = make_service_action(target, action.name, parameters, user, suffix)
        if self._inline_results:
            recorded["metadata"]["annotations"][ANNOTATION_INLINE_RESULT] = "true"
        namespace = target.metadata.namespace
        try:
            try:
                return 202, await self._client.create(SERVICE_ACTIONS, recorded, namespace)
            except AlreadyExistsError:
                if not key:
                    raise
                return 202, await self._client.get(SERVICE_ACTIONS, recorded["metadata"]["name"], namespace)
        except ApiError as error:
            raise translate_api_error(target.subject, error) from error

    async def _wait(self, target: Target, action: Action, parameters: Mapping[str, Value], message_id: str) -> Json:
        called = datetime.now(UTC)
        destination = self._directory.choose_destination(target)
        reply = await ask(
            self._broker,
            target.subject,
            destination,
            Request.ACTION,
            {
                "action": action.name,
                "parameters": dict(parameters),
                "mode": ActionMode.SYNC.value,
                "timeoutSeconds": min(action.timeout_seconds, self._sync_seconds),
                **self._urls.to_json(),
            },
            timeout_seconds=self._sync_seconds,
            message_id=message_id,
            timeout_message=f'action "{action.name}" has not finished within {self._sync_seconds} s: {REMEDY}',
        )
        return make_action_result(target, destination, action, reply, called)


def _declared(target: Target, service: CachedService, name: str) -> Action:
    action = service.interface.find_action(name)
    if action is None:
        declared = [item.name for item in service.interface.actions]
        raise make_undeclared_error(target.subject, "action", name, declared)
    return action


def make_action_result(
    target: Target, destination: Destination, action: Action, reply: Reply, called: datetime
) -> Json:
    """Return the ActionResult for an adapter's reply.

    Raises:
        StatusError: 502, the result does not match the declaration, or the reply names a worker outside of the target.
    """
    worker = destination.worker or reply.worker
    if not destination.includes(worker):
        problem = "the reply does not name a worker of the pool that was asked"
        raise make_invalid_reply_error(target.subject, ErrorReason.INVALID_RESULT.value, problem, "worker")
    try:
        result = reply.result.check(action)
    except InvalidResultError as invalid:
        error = invalid.error
        raise make_invalid_reply_error(target.subject, error.reason.value, error.message, error.field) from None
    return {
        "apiVersion": SUBRESOURCES_API_VERSION,
        "kind": ACTION_RESULT,
        "metadata": {
            "name": target.metadata.name,
            "namespace": target.metadata.namespace,
            "creationTimestamp": format_time(called),
        },
        "worker": worker,
        "seconds": reply.seconds,
        "result": result,
    }


def make_service_action(target: Target, action: str, parameters: Mapping[str, Value], user: str, suffix: str) -> Json:
    """Return the ServiceAction that records a call, named after the target, the action and ``suffix``."""
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
