# SPDX-License-Identifier: Apache-2.0
"""Rules by which a CloudSite permits the machine of a Worker: open namespaces, consent, cordon.

The rules are enforced at three points:

1. Admission policies refuse a WorkerPool or a Worker of a user that breaks a rule (:mod:`simyard.manifests.admission`).
   A policy cannot call Python. So each rule stands here twice: as a function, and as a CEL expression below it.
2. The plan of a pool places new workers only at permitted sites (:func:`simyard.plan.placement.choose_sites`).
3. The operator checks each Worker again, with the newest CloudSite and pool, just before it requests the machine
   (:class:`simyard.fleet.sites.machine_requests.MachineRequests`).

The policies alone are not enough: a CloudSite may change after a pool or Worker was stored, and an API server that has
just started evaluates no policy.
"""

from __future__ import annotations

from collections.abc import Collection

from simyard.api.cloud_site import CloudSite


def is_open(site: CloudSite, namespace: str) -> bool:
    """Return whether workers of a namespace may run at a site."""
    allowed = site.spec.allowed_namespaces
    return allowed.from_ != "Selected" or namespace in allowed.names


CEL_IS_OPEN = "params.spec.allowedNamespaces.from == 'All' || request.namespace in params.spec.allowedNamespaces.names"
"""The rule of :func:`is_open` for the namespace of a request; ``params`` is the CloudSite."""


def has_consent(site: CloudSite, consent: Collection[str] | None) -> bool:
    """Return whether a site may receive the data of a worker; ``consent`` is None for a worker without a pool."""
    return site.spec.trust != "External" or (consent is not None and site.metadata.name in consent)


CEL_POOL_HAS_CONSENT = "params.spec.trust != 'External' || params.metadata.name in object.spec.placement.consent"
"""The rule of :func:`has_consent` for a WorkerPool."""

CEL_WORKER_MAY_HAVE_CONSENT = "params.spec.trust != 'External' || object.metadata.?ownerReferences.hasValue()"
"""The rule of :func:`has_consent` for a Worker without a pool; a policy cannot read the pool of a Worker."""


def find_refusal(site: CloudSite, namespace: str, consent: Collection[str] | None) -> str:
    """Return the reason why no worker may start at the site, or an empty text.

    Args:
        site: CloudSite to check.
        namespace: Namespace of the worker.
        consent: External sites that have the consent of the worker's pool; None for a worker without a pool.
    """
    if site.metadata.deletion_timestamp is not None:
        return "is being deleted"
    if site.spec.cordoned:
        return "is cordoned"
    if not is_open(site, namespace):
        return f"is not open to namespace {namespace}"
    if has_consent(site, consent):
        return ""
    if consent is None:
        return "is External: it runs only workers of a WorkerPool whose spec.placement.consent names it"
    return "is External, and spec.placement.consent does not name it"
