"""May this user do this: a SubjectAccessReview for each new question, and a short memory of the answers."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from simyard.api.base import Json
from simyard.api.names import VERSION
from simyard.apiserver.frontproxy import Identity
from simyard.apiserver.metrics import REVIEWS
from simyard.apiserver.routes import Call
from simyard.apiserver.status import StatusError, StatusReason, Subject
from simyard_sites.kubernetes.client import KubeClient, path_of
from simyard_sites.kubernetes.errors import ApiError
from simyard_sites.kubernetes.resource import Resource

REVIEWS_RESOURCE = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False)
TTL_SECONDS = 10.0
CAPACITY = 10_000
REVIEW_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to a review; ``reason`` is for the user."""

    allowed: bool
    reason: str


Question = tuple[Identity, Call]


class Authorizer:
    """Asks kube-apiserver, remembers for ten seconds, and asks each question once at a time."""

    def __init__(self, client: KubeClient, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._known: OrderedDict[Question, tuple[float, Decision]] = OrderedDict()
        self._pending: dict[Question, asyncio.Task[Decision]] = {}

    async def check(self, identity: Identity, call: Call) -> None:
        """Return if the user may do it.

        Raises:
            StatusError: they may not (403), or it cannot be found out now (503).
        """
        decision = await self._decide((identity, call))
        if not decision.allowed:
            subject = Subject(call.resource, call.name)
            what = "/".join(part for part in (call.resource.plural, call.subresource) if part)
            reason = f": {decision.reason}" if decision.reason else ""
            raise StatusError(
                StatusReason.FORBIDDEN,
                f'{subject} is forbidden: User "{identity.user}" cannot {call.verb} resource "{what}" in API group '
                f'"{call.group}" in the namespace "{call.namespace}"{reason}',
                subject=subject,
            )

    async def _decide(self, question: Question) -> Decision:
        if (known := self._known.get(question)) is not None and known[0] > self._clock():
            self._known.move_to_end(question)
            REVIEWS.labels("cached").inc()
            return known[1]
        task = self._pending.get(question)
        REVIEWS.labels("asked" if task is None else "joined").inc()
        if task is None:
            task = asyncio.create_task(self._ask(question), name="access review")
            self._pending[question] = task
            task.add_done_callback(lambda _: self._pending.pop(question))
        return await asyncio.shield(task)

    async def _ask(self, question: Question) -> Decision:
        try:
            async with asyncio.timeout(REVIEW_SECONDS):
                answer = await self._client.request(
                    "POST", path_of(REVIEWS_RESOURCE), body=review(*question), resource=REVIEWS_RESOURCE
                )
        except (ApiError, TimeoutError) as error:
            raise StatusError(
                StatusReason.SERVICE_UNAVAILABLE,
                f"whether this is permitted cannot be found out now: {str(error) or 'no answer in time'}",
                retry_after_seconds=1,
            ) from error
        status = answer.get("status") or {}
        decision = Decision(bool(status.get("allowed")) and not status.get("denied"), str(status.get("reason") or ""))
        self._known[question] = (self._clock() + TTL_SECONDS, decision)
        while len(self._known) > CAPACITY:
            self._known.popitem(last=False)
        return decision


def review(identity: Identity, call: Call) -> Json:
    """The SubjectAccessReview that asks whether a user may make a call."""
    return {
        "apiVersion": REVIEWS_RESOURCE.api_version,
        "kind": REVIEWS_RESOURCE.kind,
        "spec": {
            "user": identity.user,
            "uid": identity.uid,
            "groups": list(identity.groups),
            "extra": {key: list(values) for key, values in identity.extra},
            "resourceAttributes": {
                "verb": call.verb,
                "namespace": call.namespace,
                "group": call.group,
                "version": VERSION,
                "resource": call.resource.plural,
                "subresource": call.subresource,
                "name": call.name,
            },
        },
    }
