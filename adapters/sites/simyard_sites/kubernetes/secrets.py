"""What the machines of a pool share and nobody else may read: one Secret for each content.

Each Secret belongs to a ControllerRevision (a named revision of something, which holds nothing secret): it goes when
that one goes. So the Secrets of a site are found and removed without the right to read any.
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
from simyard_sites.kubernetes.ownership import selector
from simyard_sites.kubernetes.resource import Resource

SECRETS = Resource("", "v1", "secrets", "Secret")
REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
FRESH_SECONDS = 30.0
"""So long a Secret that was seen is taken to be there."""
GRACE_SECONDS = 60.0
"""A Secret that nothing refers to stays so long after it was last asked for: its machines may be on their way."""
_DIGITS = 10

Key = tuple[str, str]
"""Namespace and name of a Secret."""


@dataclass(slots=True)
class _Known:
    """A Secret of ours: the revision it belongs to, and the machines that refer to it (by id)."""

    revision: str = ""
    asked: float = float("-inf")
    machines: set[str] = field(default_factory=set)


class SharedSecrets:
    """Those of one site; ``labels`` are the site's (:func:`simyard_sites.kubernetes.ownership.site_labels`)."""

    def __init__(self, labels: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        self._labels = dict(labels)
        self._clock = clock
        self._known: dict[Key, _Known] = {}
        self._key_of: dict[str, Key] = {}
        self._names: dict[Key, str] = {}
        self._making: dict[Key, asyncio.Lock] = {}

    async def ensure(self, client: KubeClient, namespace: str, name: str, data: Mapping[str, bytes]) -> str:
        """The name of the Secret that has this data, after it was made if need be: two writes for each content.

        Raises:
            ApiError: the API server refuses, or does not answer.
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

    def refer(self, machine_id: str, namespace: str, secret: str) -> None:
        """A machine that is there refers to the Secret."""
        key = (namespace, secret)
        if self._key_of.get(machine_id) != key:
            self.gone(machine_id)
            self._key_of[machine_id] = key
            self._known.setdefault(key, _Known()).machines.add(machine_id)

    def gone(self, machine_id: str) -> None:
        """A machine is not there any more."""
        key = self._key_of.pop(machine_id, None)
        if key is not None:
            self._known[key].machines.discard(machine_id)

    def forget_others(self, machine_ids: set[str]) -> None:
        """These are all machines that are there."""
        for machine_id in [known for known in self._key_of if known not in machine_ids]:
            self.gone(machine_id)

    async def sweep(self, client: KubeClient, namespace: str) -> None:
        """Remove those that nothing refers to, also those of an earlier process; "" is every namespace.

        Raises:
            ApiError: the API server refuses, or does not answer.
        """
        await self._find(client, namespace)
        for key in self._unused():
            await self._remove(client, key, self._unused)

    async def clear(self, client: KubeClient, namespace: str) -> None:
        """Remove all of them, also those of an earlier process: no machine is left, nor will be made.

        Raises:
            ApiError: the API server refuses, or does not answer.
        """
        await self._find(client, namespace)
        for key in list(self._known):
            await self._remove(client, key, lambda: self._known)

    async def _find(self, client: KubeClient, namespace: str) -> None:
        """Know all that are there; "" is every namespace."""

        def take(page: list[Json]) -> None:
            for item in page:
                metadata = item["metadata"]
                key = (metadata["namespace"], _secret_of(metadata["name"], metadata["uid"]))
                self._known.setdefault(key, _Known()).revision = metadata["name"]

        await client.list_all(REVISIONS, namespace, labels=selector(self._labels), take=take)

    @property
    def has_unused(self) -> bool:
        """Whether there is something to sweep, as far as is known."""
        return bool(self._unused())

    def _unused(self) -> list[Key]:
        oldest = self._clock() - GRACE_SECONDS
        return [key for key, known in self._known.items() if not known.machines and known.asked <= oldest]

    async def _remove(self, client: KubeClient, key: Key, due: Callable[[], Container[Key]]) -> None:
        """Remove one, if it is still due when nobody makes it any more."""
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
    """A revision that is made again has another Secret: the former one goes some time after its revision."""
    return f"{revision}-{uid[:8]}"


def _digest(data: Mapping[str, bytes], labels: Mapping[str, str]) -> str:
    """Of what is in it and whose it is: sites that share a namespace share no Secret, since each removes its own."""
    digest = hashlib.sha256()
    of_whom = {key: value.encode() for key, value in labels.items()}
    for key, value in [*sorted(of_whom.items()), *sorted(data.items())]:
        digest.update(b"%d:%s%d:" % (len(key), key.encode(), len(value)) + value)
    return digest.hexdigest()[:_DIGITS]
