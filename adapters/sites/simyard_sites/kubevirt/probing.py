"""Whether a cluster can run our machines: is KubeVirt there, which version, and may we do what we need to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from simyard_sites.base import ErrorScope, InvalidSpecError, PermissionDeniedError, UnavailableError
from simyard_sites.kubernetes.client import Json, KubeClient
from simyard_sites.kubernetes.errors import ApiError, NotFoundError
from simyard_sites.kubernetes.refusals import site_error
from simyard_sites.kubernetes.rights import DISKS, INSTANCETYPES, MACHINES, Rule
from simyard_sites.kubevirt.settings import DataVolume, Settings

API = "/apis/kubevirt.io/v1"
CDI = "/apis/cdi.kubevirt.io/v1beta1"
SUBRESOURCES = "/apis/subresources.kubevirt.io/v1"
NOT_INSTALLED = (
    "KubeVirt is not installed in the cluster: there is no API kubevirt.io/v1. Install KubeVirt, or name its cluster in"
    " spec.provider.kubevirt.kubeconfigSecretRef"
)
NO_CDI = (
    "spec.provider.kubevirt.rootDisk.dataVolume: the Containerized Data Importer (CDI) is not installed in the cluster;"
    " install it, or use rootDisk.containerDisk"
)
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def probe_cluster(client: KubeClient, settings: Settings) -> str:
    """The version of KubeVirt.

    Raises:
        SiteError: that says why machines cannot run there.
    """
    await _served(client, API, NOT_INSTALLED)
    if isinstance(settings.root_disk, DataVolume):
        await _served(client, CDI, NO_CDI)
    version, _ = await asyncio.gather(_version(client), _permitted(client, settings))
    return version


async def _served(client: KubeClient, path: str, otherwise: str) -> None:
    try:
        await client.request("GET", path)
    except NotFoundError:
        raise InvalidSpecError(otherwise, scope=ErrorScope.SITE) from None
    except ApiError as error:
        raise site_error(error) from error


async def _version(client: KubeClient) -> str:
    try:
        told = await client.request("GET", f"{SUBRESOURCES}/version")
    except ApiError as error:
        if error.status in (404, 503):
            raise UnavailableError(f"KubeVirt's virt-api does not answer: {error.message.strip()}") from error
        raise site_error(error) from error
    return f"KubeVirt {told.get('gitVersion') or 'of an unknown version'}"


async def _permitted(client: KubeClient, settings: Settings) -> None:
    rules = MACHINES + (DISKS if isinstance(settings.root_disk, DataVolume) else ())
    asked = [(rule, verb, settings.namespace) for rule in rules for verb in rule.verbs]
    for reference in filter(None, (settings.instancetype, settings.preference)):
        rule = next(rule for rule in INSTANCETYPES if rule.resource == f"{reference.kind.lower()}s")
        asked += [(rule, verb, "" if "Cluster" in reference.kind else settings.namespace) for verb in rule.verbs]
    answers = await asyncio.gather(*(_may(client, *question) for question in asked))
    missing = [question for question, allowed in zip(asked, answers, strict=True) if not allowed]
    if missing:
        raise PermissionDeniedError(_missing(missing))


async def _may(client: KubeClient, rule: Rule, verb: str, namespace: str) -> bool:
    resource, _, subresource = rule.resource.partition("/")
    attributes: Json = {"group": rule.group, "resource": resource, "verb": verb, "namespace": namespace}
    if subresource:
        attributes["subresource"] = subresource
    body: Json = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    try:
        answer = await client.request("POST", _REVIEWS, body=body)
    except ApiError as error:
        raise site_error(error) from error
    return bool((answer.get("status") or {}).get("allowed"))


def _missing(questions: Sequence[tuple[Rule, str, str]]) -> str:
    verbs: dict[tuple[Rule, str], list[str]] = {}
    for rule, verb, namespace in questions:
        verbs.setdefault((rule, namespace), []).append(verb)
    named = [
        f"{', '.join(names)} {rule.resource}{'.' if rule.group else ''}{rule.group}"
        f" in {f'namespace {namespace}' if namespace else 'all namespaces'}"
        for (rule, namespace), names in verbs.items()
    ]
    return f"the account may not {'; '.join(named)}: grant it what docs/sites/kubevirt.md lists"
