# SPDX-License-Identifier: Apache-2.0
"""Rules by which a CloudSite permits the machine of a Worker: deletion, cordon, open namespaces, consent.

Three places enforce the rules:

1. Admission policies refuse a user's WorkerPool or Worker that breaks a rule (:mod:`simyard.manifests.admission`).
   A policy cannot call Python. So the rules about open namespaces and consent stand here twice: as a function, and as a
   CEL expression below it. The CEL expression of the cordon is in the policy for Workers; a pool may name a cordoned
   site. No policy checks whether a site is being deleted.
2. The plan of a pool places new workers only at permitted sites (:func:`simyard.plan.placement.choose_sites`).
3. The operator checks each Worker again, with the newest CloudSite and pool, just before it requests the machine
   (:class:`simyard.fleet.sites.machine_requests.MachineRequests`).

The policies alone are not enough: a CloudSite can change after a user stored a pool or Worker, and an API server that
has just started knows no CloudSites yet and accepts every request.
"""

from __future__ import annotations

from collections.abc import Collection

from simyard.api.cloud_site import CloudSite


def is_open(site: CloudSite, namespace: str) -> bool:
    """Return whether workers of a namespace may run at a site."""
    allowed = site.spec.allowed_namespaces
    return allowed.from_ != "Selected" or namespace in allowed.names


CEL_IS_OPEN = "params.spec.allowedNamespaces.from == 'All' || request.namespace in params.spec.allowedNamespaces.names"
"""CEL form of :func:`is_open`, for the namespace of a request; ``params`` is the CloudSite."""


def has_consent(site: CloudSite, consent: Collection[str] | None) -> bool:
    """Return whether a site may receive the data of a worker; ``consent`` is None for a worker without a pool."""
    return site.spec.trust != "External" or (consent is not None and site.metadata.name in consent)


CEL_POOL_HAS_CONSENT = "params.spec.trust != 'External' || params.metadata.name in object.spec.placement.consent"
"""CEL form of :func:`has_consent`, for a WorkerPool."""

CEL_WORKER_MAY_HAVE_CONSENT = "params.spec.trust != 'External' || object.metadata.?ownerReferences.hasValue()"
"""CEL form of :func:`has_consent`, for a Worker.

A policy cannot read the pool of a Worker, so it checks only Workers without a pool."""


def find_refusal(site: CloudSite, namespace: str, consent: Collection[str] | None) -> str:
    """Return the reason why the worker may not start at the site; an empty text if it may.

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
