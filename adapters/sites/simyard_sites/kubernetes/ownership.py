# SPDX-License-Identifier: Apache-2.0
"""Builds and reads the labels that say to which site and worker an object belongs."""

from __future__ import annotations

from simyard_sites.base import Owner
from simyard_sites.kubernetes.client import Json

LABEL_INSTALLATION = "simyard.dev/installation"
LABEL_SITE = "simyard.dev/site"
LABEL_NAMESPACE = "simyard.dev/namespace"
LABEL_POOL = "simyard.dev/pool"
LABEL_WORKER = "simyard.dev/worker"
LABEL_WORKER_UID = "simyard.dev/worker-uid"


def build_site_labels(installation: str, site: str) -> dict[str, str]:
    """Return the labels of every object that this site creates."""
    return {LABEL_INSTALLATION: installation, LABEL_SITE: site}


def build_selector(labels: dict[str, str]) -> str:
    """Return the label selector for objects that have all these labels."""
    return ",".join(f"{key}={value}" for key, value in labels.items())


def build_owner_labels(owner: Owner) -> dict[str, str]:
    """Return the labels of a machine, in addition to the labels of its site."""
    labels = {
        LABEL_NAMESPACE: owner.namespace,
        LABEL_WORKER: owner.worker,
        LABEL_WORKER_UID: owner.worker_uid,
    }
    return {**labels, LABEL_POOL: owner.pool} if owner.pool else labels


def read_owner(item: Json) -> Owner | None:
    """Return the owner that an object's labels name, or None."""
    labels = item["metadata"].get("labels") or {}
    try:
        return Owner(
            namespace=labels[LABEL_NAMESPACE],
            worker=labels[LABEL_WORKER],
            worker_uid=labels[LABEL_WORKER_UID],
            pool=labels.get(LABEL_POOL, ""),
        )
    except KeyError:
        return None
