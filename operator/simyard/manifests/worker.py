# SPDX-License-Identifier: Apache-2.0
"""Manifests of Workers, with and without a pool."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from simyard.api import names
from simyard.api.base import Json
from simyard.api.worker_pool import WorkerPool


def build_pool_worker(
    pool: WorkerPool, name: str, site: str, revision: str, requested: datetime, *, licence: str = "", version: str = ""
) -> Json:
    """Return a Worker that a pool owns.

    ``requested`` is the time of the request. ``licence`` is the licence whose seat the Worker occupies, and ``version``
    is the version of its service.
    """
    annotations = {names.ANNOTATION_REQUESTED: requested.isoformat()}
    if version:
        annotations[names.ANNOTATION_VERSION] = version
    if licence:
        annotations[names.ANNOTATION_LICENCE] = licence
    return {
        "apiVersion": names.WORKERS.api_version,
        "kind": names.WORKERS.kind,
        "metadata": {
            "name": name,
            "namespace": pool.metadata.namespace,
            "labels": {
                names.LABEL_POOL: pool.metadata.name,
                names.LABEL_SERVICE: pool.spec.service_ref.name,
                names.LABEL_SITE: site,
                names.LABEL_REVISION: revision,
            },
            "annotations": annotations,
            "ownerReferences": [
                {
                    "apiVersion": names.WORKER_POOLS.api_version,
                    "kind": names.WORKER_POOLS.kind,
                    "name": pool.metadata.name,
                    "uid": pool.metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "serviceRef": {"name": pool.spec.service_ref.name},
            "site": site,
            "attributes": pool.spec.attributes,
        },
    }


def build_lone_worker(
    name: str, namespace: str, spec: Json, annotations: Mapping[str, str], requested: datetime
) -> Json:
    """Return a Worker without a pool; ``requested`` is the time of the request."""
    return {
        "apiVersion": names.WORKERS.api_version,
        "kind": names.WORKERS.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {names.LABEL_SERVICE: spec["serviceRef"]["name"], names.LABEL_SITE: spec["site"]},
            "annotations": {**annotations, names.ANNOTATION_REQUESTED: requested.isoformat()},
        },
        "spec": spec,
    }
