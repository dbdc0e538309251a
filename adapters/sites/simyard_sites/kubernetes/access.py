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


async def check_rights(client: KubeClient, wanted: Sequence[tuple[Rule, str]], document: str) -> None:
    """Ask whether the account has these rights, each in a namespace; "" is every namespace.

    ``document`` is where the rights are listed.

    Raises:
        PermissionDeniedError: it lacks some; which, is in the message.
        ApiError: the API server refuses, or does not answer.
    """
    asked = [(rule, namespace, verb) for rule, namespace in wanted for verb in rule.verbs]
    answers = await asyncio.gather(*(client.create(REVIEWS, _review(*question)) for question in asked))
    missing: dict[tuple[Rule, str], list[str]] = {}
    for (rule, namespace, verb), answer in zip(asked, answers, strict=True):
        if not (answer.get("status") or {}).get("allowed"):
            missing.setdefault((rule, namespace), []).append(verb)
    if missing:
        named = [
            f"{', '.join(verbs)} {rule.resource}{'.' if rule.group else ''}{rule.group}"
            f" in {f'namespace {namespace}' if namespace else 'all namespaces'}"
            for (rule, namespace), verbs in missing.items()
        ]
        raise PermissionDeniedError(f"the account may not {'; '.join(named)}: grant it what {document} lists")


def _review(rule: Rule, namespace: str, verb: str) -> Json:
    resource, _, subresource = rule.resource.partition("/")
    attributes = {"group": rule.group, "resource": resource, "subresource": subresource, "verb": verb}
    spec = {"resourceAttributes": {**attributes, "namespace": namespace}}
    return {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind, "spec": spec}
