# SPDX-License-Identifier: Apache-2.0
"""Authorizes calls: asks for a SubjectAccessReview for each new question, and caches recent decisions.

RBAC alone decides who may call an action: the right to ``create`` ``TARGETS/actions/NAME`` in the group
``subresources.simyard.dev`` (``update`` for a PUT, and for a change of an object). A call arrives in one of four ways,
and each way checks this right:

- The aggregated API asks here (:mod:`simyard.apiserver.api`). Before that, kube-apiserver itself checks the right to
  ``TARGETS/actions``, because it sees only the first segment of the subresource.
- The OCCI frontends ask here (:mod:`simyard.frontend.access`).
- A ServiceAction that a user creates or changes passes an admission policy, in which the API server checks the right
  (:func:`simyard.manifests.admission.build_action_policy`).
- A Study that a user creates or changes passes a policy with the same check
  (:func:`simyard.manifests.admission.build_study_policy`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from simyard.api.base import Json
from simyard.api.names import VERSION
from simyard.serving.answers import RecentAnswers
from simyard.serving.calls import ResourceCall
from simyard.serving.identity import Identity
from simyard.serving.metrics import REVIEWS
from simyard.serving.status import StatusError, StatusReason, Subject
from simyard_sites.kubernetes.client import KubeClient, build_path
from simyard_sites.kubernetes.errors import ApiError
from simyard_sites.kubernetes.resource import Resource

REVIEWS_RESOURCE = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False)
TTL_SECONDS = 10.0
CAPACITY = 10_000
REVIEW_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to a SubjectAccessReview. Users see ``reason``."""

    allowed: bool
    reason: str


Question = tuple[Identity, ResourceCall]


class Authorizer:
    """A client for access reviews, which caches decisions for ten seconds and joins equal concurrent questions."""

    def __init__(self, client: KubeClient, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._answers: RecentAnswers[Question, Decision] = RecentAnswers(
            TTL_SECONDS, CAPACITY, name="access review", clock=clock
        )

    async def check(self, identity: Identity, call: ResourceCall) -> None:
        """Check that a user may make a call.

        Raises:
            StatusError: the user may not (403), or kube-apiserver does not answer the review (503).
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
        if (kept := self._answers.get(question)) is not None:
            REVIEWS.labels("cached").inc()
            return kept.answer
        REVIEWS.labels("joined" if self._answers.is_pending(question) else "asked").inc()
        return await self._answers.share(question, lambda: self._ask(question))

    async def _ask(self, question: Question) -> Decision:
        try:
            async with asyncio.timeout(REVIEW_SECONDS):
                answer = await self._client.request(
                    "POST", build_path(REVIEWS_RESOURCE), body=make_review(*question), resource=REVIEWS_RESOURCE
                )
        except (ApiError, TimeoutError) as error:
            raise StatusError(
                StatusReason.SERVICE_UNAVAILABLE,
                f"the Kubernetes API cannot review your rights now: {str(error) or 'no answer in time'}; try again",
                retry_after_seconds=1,
            ) from error
        status = answer.get("status") or {}
        decision = Decision(bool(status.get("allowed")) and not status.get("denied"), str(status.get("reason") or ""))
        self._answers.keep(question, decision)
        return decision


def make_review(identity: Identity, call: ResourceCall) -> Json:
    """Return the SubjectAccessReview that asks whether a user may make a call."""
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
