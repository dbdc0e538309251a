# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the Secret of the master key.

The operator reads the key, creates it if it is missing, and watches it. The platform team replaces the key with
``kubectl simyard rotate``: one write stores the new key, its number, and the former key as ``previous``. The operator
removes ``previous`` when no worker uses a password of the former key any more.

The Secret has room for one former key, so there is one rotation at a time. If the team asks for a rotation during a
rotation, the command stores the new key as ``following``. The write that ends the first rotation also starts the
second one. Further requests before this write need no third rotation, because the second one replaces all passwords
that are in use at that time.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from simyard.api.base import Json, Metadata
from simyard.api.names import MASTER_KEY_SECRET
from simyard.kube.cache import Cache
from simyard.messaging.credentials import FIRST_NUMBER, MASTER_KEY_BYTES, MasterKeys, make_master_key
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import AlreadyExistsError, ConflictError, NotFoundError
from simyard_sites.kubernetes.resource import Resource

SECRETS = Resource("", "v1", "secrets", "Secret")
_KEYS = ("key", "previous", "following")


class MasterKeyError(Exception):
    """Error: the Secret of the master key has no usable key. The message names the remedy."""

    retryable = True


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """Content of the Secret: its keys, and the metadata that a write needs."""

    metadata: Metadata
    keys: MasterKeys

    @classmethod
    def read(cls, raw: Json) -> StoredKeys:
        """Parse the Secret.

        Raises:
            MasterKeyError: it holds no usable key.
        """
        data = raw.get("data") or {}
        name = f"the Secret {raw['metadata'].get('name')}"
        try:
            fields = {key: base64.b64decode(data.get(key) or "", validate=True) for key in _KEYS}
            number = int(base64.b64decode(data.get("number") or "").decode() or FIRST_NUMBER)
            keys = MasterKeys(fields["key"], number, fields["previous"], fields["following"])
        except (ValueError, binascii.Error) as error:
            raise MasterKeyError(f"{name} cannot be parsed: {error}; restore it from a backup, or delete it") from None
        lengths = (len(keys.key), *(len(key) for key in (keys.previous, keys.following) if key))
        if min(lengths) < MASTER_KEY_BYTES or number < FIRST_NUMBER:
            raise MasterKeyError(f"{name} has a key that is too short; restore it from a backup, or delete it")
        return cls(Metadata.model_validate(raw["metadata"]), keys)


class MasterKey:
    """The Secret with the master key of one installation."""

    def __init__(self, client: KubeClient, namespace: str, on_change: Callable[[], None]) -> None:
        """Create a cache of the Secret, which calls ``on_change`` when the keys have changed."""
        self._client = client
        self._namespace = namespace
        self._on_change = on_change
        self._cache = Cache(
            client,
            SECRETS,
            StoredKeys.read,
            namespaces=(namespace,),
            fields=f"metadata.name={MASTER_KEY_SECRET}",
        )
        self._cache.subscribe(self._changed)

    async def run(self) -> NoReturn:
        """Watch the Secret until cancelled."""
        await self._cache.run()
        raise AssertionError("a cache runs until it is cancelled")

    async def read(self) -> MasterKeys:
        """Return the keys from the API server; create the first key if there is none.

        Raises:
            ApiError: the API server did not answer, or refused the request.
            MasterKeyError: the Secret holds no usable key.
        """
        try:
            raw = await self._client.get(SECRETS, MASTER_KEY_SECRET, self._namespace)
        except NotFoundError:
            body = build_secret(MASTER_KEY_SECRET, self._namespace, {"key": make_master_key()})
            try:
                raw = await self._client.create(SECRETS, body, self._namespace)
            except AlreadyExistsError:
                raw = await self._client.get(SECRETS, MASTER_KEY_SECRET, self._namespace)
        return StoredKeys.read(raw).keys

    async def end_rotation(self, keys: MasterKeys) -> MasterKeys:
        """Remove the former key from the Secret, start the next rotation if one was requested, and return the new keys.

        If the Secret has changed since ``keys`` were read, write nothing and return the present keys.

        Raises:
            ApiError: the API server did not remove it.
            MasterKeyError: the Secret holds no usable key.
        """
        raw = await self._client.get(SECRETS, MASTER_KEY_SECRET, self._namespace)
        if (stored := StoredKeys.read(raw).keys) != keys:
            return stored
        path = f"/api/v1/namespaces/{self._namespace}/secrets/{MASTER_KEY_SECRET}"
        body = {**raw, "data": replace_keys(raw["data"], keys.end_rotation())}
        try:
            await self._client.request("PUT", path, body=body, resource=SECRETS)
        except (ConflictError, NotFoundError):
            return keys  # another rotation has begun
        return keys.end_rotation()

    def _changed(self, old: StoredKeys | None, new: StoredKeys | None) -> None:
        if new is not None and old is not None and new.keys != old.keys:
            self._on_change()


def replace_keys(data: Json, keys: MasterKeys) -> Json:
    """Return the data of the Secret with ``keys`` in place of the old keys."""
    others = {name: value for name, value in data.items() if name not in (*_KEYS, "number")}
    values = {
        "key": keys.key,
        "number": str(keys.number).encode(),
        "previous": keys.previous,
        "following": keys.following,
    }
    return others | {name: base64.b64encode(value).decode() for name, value in values.items() if value}


def build_secret(name: str, namespace: str, data: dict[str, bytes]) -> Json:
    """Return the manifest of a Secret."""
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": "Opaque",
        "data": encoded,
    }
