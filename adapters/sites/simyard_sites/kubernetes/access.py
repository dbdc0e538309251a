# SPDX-License-Identifier: Apache-2.0
"""Reads the version of a cluster and the rights of our account."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from simyard_sites.base import PermissionDeniedError
from simyard_sites.kubernetes.client import Json, KubeClient
from simyard_sites.kubernetes.resource import Resource
from simyard_sites.kubernetes.rights import Rule

REVIEWS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False)


async def get_server_version(client: KubeClient) -> str:
    """Return the version of the API server, as text for users.

    Raises:
        ApiError: The API server refuses the request or does not answer.
    """
    version = await client.request("GET", "/version")
    return f"Kubernetes {version.get('gitVersion', 'of an unknown version')}"


async def check_rights(client: KubeClient, wanted: Sequence[tuple[Rule, str]], document: str) -> None:
    """Check that the account has these rights, each in a namespace; "" means every namespace.

    ``document`` is the page that lists the rights.

    Raises:
        PermissionDeniedError: Some rights are missing; the message lists them.
        ApiError: The API server refuses the request or does not answer.
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
        raise PermissionDeniedError(
            f"the account lacks the rights: {'; '.join(named)}. Grant the rights that {document} lists"
        )


def _review(rule: Rule, namespace: str, verb: str) -> Json:
    resource, _, subresource = rule.resource.partition("/")
    attributes = {"group": rule.group, "resource": resource, "subresource": subresource, "verb": verb}
    spec = {"resourceAttributes": {**attributes, "namespace": namespace}}
    return {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind, "spec": spec}
