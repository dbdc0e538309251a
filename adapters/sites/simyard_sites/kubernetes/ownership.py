"""Whose machine an object is: the labels by which it is found again."""

from __future__ import annotations

from simyard_sites.base import Owner
from simyard_sites.kubernetes.client import Json

LABEL_INSTALLATION = "simyard.dev/installation"
LABEL_SITE = "simyard.dev/site"
LABEL_NAMESPACE = "simyard.dev/namespace"
LABEL_POOL = "simyard.dev/pool"
LABEL_WORKER = "simyard.dev/worker"
LABEL_WORKER_UID = "simyard.dev/worker-uid"


def site_labels(installation: str, site: str) -> dict[str, str]:
    """The labels of everything that we make at a site."""
    return {LABEL_INSTALLATION: installation, LABEL_SITE: site}


def selector(labels: dict[str, str]) -> str:
    """The label selector of what has them all."""
    return ",".join(f"{key}={value}" for key, value in labels.items())


def owner_labels(owner: Owner) -> dict[str, str]:
    """The labels of a machine, beside those of its site."""
    labels = {
        LABEL_NAMESPACE: owner.namespace,
        LABEL_WORKER: owner.worker,
        LABEL_WORKER_UID: owner.worker_uid,
    }
    return {**labels, LABEL_POOL: owner.pool} if owner.pool else labels


def owner_of(item: Json) -> Owner | None:
    """The owner that an object's labels name; None where they name none."""
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
