# SPDX-License-Identifier: Apache-2.0
"""Manages the Secrets with the bootstrap documents that the machines of a pool share: one Secret per content.

The problem: unused Secrets must be deleted, including the Secrets of an earlier process, but the site must not have the
right to read Secrets. Each Secret is therefore owned by a ControllerRevision, an object that contains nothing secret.
The site lists these revisions and deletes the unused ones, and Kubernetes deletes their Secrets with them. The
invariant: a Secret that a machine refers to, or may refer to soon, is never deleted.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from simyard_sites.kubernetes.client import Json, KubeClient
from simyard_sites.kubernetes.errors import AlreadyExistsError, NotFoundError
from simyard_sites.kubernetes.ownership import build_selector
from simyard_sites.kubernetes.resource import Resource

SECRETS = Resource("", "v1", "secrets", "Secret")
REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
FRESH_SECONDS = 30.0
"""The time for which the site does not check again that a known Secret exists."""
GRACE_SECONDS = 60.0
"""The time for which the site keeps an unused Secret after its last request, because machines may still need it."""
_DIGITS = 10

Key = tuple[str, str]
"""The namespace and name of a Secret."""


@dataclass(slots=True)
class _Known:
    """A Secret of this site: the revision that owns it, and the ids of the machines that refer to it."""

    revision: str = ""
    asked: float = float("-inf")
    machines: set[str] = field(default_factory=set)


class SharedSecrets:
    """The shared Secrets of one site; ``labels`` are the labels of the site's objects."""

    def __init__(self, labels: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        self._labels = dict(labels)
        self._clock = clock
        self._known: dict[Key, _Known] = {}
        self._key_of: dict[str, Key] = {}
        self._names: dict[Key, str] = {}
        self._making: dict[Key, asyncio.Lock] = {}

    async def ensure(self, client: KubeClient, namespace: str, name: str, data: Mapping[str, bytes]) -> str:
        """Return the name of the Secret with this data; create it if it does not exist (two writes for each content).

        Raises:
            ApiError: The API server refuses the request or does not answer.
        """
        revision = f"{name}-{_digest(data, self._labels)}"
        making = self._making.setdefault((namespace, revision), asyncio.Lock())
        async with making:
            secret = self._names.get((namespace, revision))
            known = self._known.get((namespace, secret)) if secret is not None else None
            if secret is not None and known is not None and known.asked + FRESH_SECONDS > self._clock():
                return secret
            secret = await self._make(client, namespace, revision, data)
            self._names[namespace, revision] = secret
            known = self._known.setdefault((namespace, secret), _Known())
            known.revision, known.asked = revision, self._clock()
            return secret

    async def _make(self, client: KubeClient, namespace: str, revision: str, data: Mapping[str, bytes]) -> str:
        metadata: Json = {"name": revision, "namespace": namespace, "labels": self._labels}
        body: Json = {
            "apiVersion": REVISIONS.api_version,
            "kind": REVISIONS.kind,
            "metadata": metadata,
            "data": {},
            "revision": 1,
        }
        try:
            owner = await client.create(REVISIONS, body, namespace)
        except AlreadyExistsError:
            owner = await client.get(REVISIONS, revision, namespace)
        uid = owner["metadata"]["uid"]
        reference = {"apiVersion": REVISIONS.api_version, "kind": REVISIONS.kind, "name": revision, "uid": uid}
        secret = _secret_of(revision, uid)
        metadata = {**metadata, "name": secret, "ownerReferences": [reference]}
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "immutable": True, "data": encoded}
        with contextlib.suppress(AlreadyExistsError):
            await client.create(SECRETS, body, namespace)
        return secret

    def record_reference(self, machine_id: str, namespace: str, secret: str) -> None:
        """Record that an existing machine refers to the Secret."""
        key = (namespace, secret)
        if self._key_of.get(machine_id) != key:
            self.record_machine_gone(machine_id)
            self._key_of[machine_id] = key
            self._known.setdefault(key, _Known()).machines.add(machine_id)

    def record_machine_gone(self, machine_id: str) -> None:
        """Record that a machine is gone."""
        key = self._key_of.pop(machine_id, None)
        if key is not None:
            self._known[key].machines.discard(machine_id)

    def forget_others(self, machine_ids: set[str]) -> None:
        """Forget all machines except these."""
        for machine_id in [known for known in self._key_of if known not in machine_ids]:
            self.record_machine_gone(machine_id)

    async def sweep(self, client: KubeClient, namespace: str) -> None:
        """Delete the unused Secrets, including those of an earlier process; "" means every namespace.

        Raises:
            ApiError: The API server refuses the request or does not answer.
        """
        await self._find(client, namespace)
        for key in self._unused():
            await self._remove(client, key, self._unused)

    async def clear(self, client: KubeClient, namespace: str) -> None:
        """Delete all Secrets of the site, including those of an earlier process; call this when no machine is left.

        Raises:
            ApiError: The API server refuses the request or does not answer.
        """
        await self._find(client, namespace)
        for key in list(self._known):
            await self._remove(client, key, lambda: self._known)

    async def _find(self, client: KubeClient, namespace: str) -> None:
        """Read all revisions of the site in a namespace; "" means every namespace."""

        def read_page(page: list[Json]) -> None:
            for item in page:
                metadata = item["metadata"]
                key = (metadata["namespace"], _secret_of(metadata["name"], metadata["uid"]))
                self._known.setdefault(key, _Known()).revision = metadata["name"]

        await client.list_all(REVISIONS, namespace, labels=build_selector(self._labels), on_page=read_page)

    @property
    def has_unused(self) -> bool:
        """True if a known Secret is unused."""
        return bool(self._unused())

    def _unused(self) -> list[Key]:
        oldest = self._clock() - GRACE_SECONDS
        return [key for key, known in self._known.items() if not known.machines and known.asked <= oldest]

    async def _remove(self, client: KubeClient, key: Key, due: Callable[[], Container[Key]]) -> None:
        """Delete one Secret if it is still unused and no call is creating it."""
        namespace, _ = key
        revision = self._known[key].revision
        async with self._making.setdefault((namespace, revision), asyncio.Lock()):
            if key not in due():
                return
            if revision:
                with contextlib.suppress(NotFoundError):
                    await client.delete(REVISIONS, revision, namespace)
            for machine_id in self._known.pop(key).machines:
                del self._key_of[machine_id]
            self._names.pop((namespace, revision), None)
        self._making.pop((namespace, revision), None)


def _secret_of(revision: str, uid: str) -> str:
    """Return the name of a revision's Secret. If the revision is created again, its Secret gets another name."""
    return f"{revision}-{uid[:8]}"


def _digest(data: Mapping[str, bytes], labels: Mapping[str, str]) -> str:
    """Return a digest of the data and the site's labels.

    Because of the labels, two sites in one namespace never share a Secret, which one of them could delete.
    """
    digest = hashlib.sha256()
    of_whom = {key: value.encode() for key, value in labels.items()}
    for key, value in [*sorted(of_whom.items()), *sorted(data.items())]:
        digest.update(b"%d:%s%d:" % (len(key), key.encode(), len(value)) + value)
    return digest.hexdigest()[:_DIGITS]
