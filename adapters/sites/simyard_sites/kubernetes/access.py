"""What a cluster says of itself, and of what we may do there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from simyard_sites.base import PermissionDeniedError
from simyard_sites.kubernetes.client import Json, KubeClient
from simyard_sites.kubernetes.resource import Resource
from simyard_sites.kubernetes.rights import Rule

REVIEWS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False)


async def server_version(client: KubeClient) -> str:
    """The version of the API server, for people.

    Raises:
        ApiError: it refuses, or does not answer.
    """
    version = await client.request("GET", "/version")
    return f"Kubernetes {version.get('gitVersion', 'of an unknown version')}"


async def check_rights(client: KubeClient, rules: Sequence[Rule], namespace: str) -> None:
    """Ask whether the account has these rights; "" is every namespace.

    Raises:
        PermissionDeniedError: it lacks some; which, is in the message.
        ApiError: the API server refuses, or does not answer.
    """
    wanted = [(rule, verb) for rule in rules for verb in rule.verbs]
    reviews = await asyncio.gather(*(client.create(REVIEWS, _review(rule, verb, namespace)) for rule, verb in wanted))
    missing = [
        f"{verb} {rule.resource}{f' of {rule.group}' if rule.group else ''}"
        for (rule, verb), review in zip(wanted, reviews, strict=True)
        if not review["status"]["allowed"]
    ]
    if missing:
        where = f"the namespace {namespace}" if namespace else "all namespaces"
        raise PermissionDeniedError(f"the account lacks rights in {where}: {', '.join(missing)}; grant them by RBAC")


def _review(rule: Rule, verb: str, namespace: str) -> Json:
    resource, _, subresource = rule.resource.partition("/")
    attributes = {"group": rule.group, "resource": resource, "subresource": subresource, "verb": verb}
    spec = {"resourceAttributes": {**attributes, "namespace": namespace}}
    return {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind, "spec": spec}
