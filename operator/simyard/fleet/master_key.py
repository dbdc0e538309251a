"""The master key in its Secret: read, made when it is missing, watched, and rid of its predecessor in the end.

The platform team replaces the key (``kubectl simyard rotate``): one write puts the new key, the next number, and the
former key as ``previous``. The operator takes ``previous`` away when no worker needs it any more.
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
from simyard.messaging.credentials import FIRST_NUMBER, MASTER_KEY_BYTES, MasterKeys, new_master_key
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import AlreadyExistsError, ConflictError, NotFoundError
from simyard_sites.kubernetes.resource import Resource

SECRETS = Resource("", "v1", "secrets", "Secret")


class MasterKeyError(Exception):
    """The Secret holds no usable key; the remedy is in the message."""

    retryable = True


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """The Secret: its keys, and the metadata by which it is written."""

    metadata: Metadata
    keys: MasterKeys

    @classmethod
    def read(cls, raw: Json) -> StoredKeys:
        """Read the Secret.

        Raises:
            MasterKeyError: it holds no usable key.
        """
        data = raw.get("data") or {}
        name = f"the Secret {raw['metadata'].get('name')}"
        try:
            fields = {key: base64.b64decode(data.get(key) or "", validate=True) for key in ("key", "previous")}
            number = int(base64.b64decode(data.get("number") or "").decode() or FIRST_NUMBER)
            keys = MasterKeys(fields["key"], number, fields["previous"])
        except (ValueError, binascii.Error) as error:
            raise MasterKeyError(f"{name} cannot be read: {error}; restore it from a backup, or delete it") from None
        if min(len(keys.key), len(keys.previous) or MASTER_KEY_BYTES) < MASTER_KEY_BYTES or number < FIRST_NUMBER:
            raise MasterKeyError(f"{name} has a key that is too short; restore it from a backup, or delete it")
        return cls(Metadata.model_validate(raw["metadata"]), keys)


class MasterKey:
    """The Secret of one installation."""

    def __init__(self, client: KubeClient, namespace: str, on_change: Callable[[], None]) -> None:
        """``on_change`` is called when somebody has changed the Secret."""
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
        """Watch until cancelled."""
        await self._cache.run()
        raise AssertionError("a cache runs until it is cancelled")

    async def read(self) -> MasterKeys:
        """Return the keys from the API server; make the first one where there is none.

        Raises:
            ApiError: the API server did not answer, or refuses.
            MasterKeyError: the Secret holds no usable key.
        """
        try:
            raw = await self._client.get(SECRETS, MASTER_KEY_SECRET, self._namespace)
        except NotFoundError:
            body = secret_body(MASTER_KEY_SECRET, self._namespace, {"key": new_master_key()})
            try:
                raw = await self._client.create(SECRETS, body, self._namespace)
            except AlreadyExistsError:
                raw = await self._client.get(SECRETS, MASTER_KEY_SECRET, self._namespace)
        return StoredKeys.read(raw).keys

    async def forget_previous(self, keys: MasterKeys) -> None:
        """Remove the former key, unless the Secret has changed since these keys were read.

        Raises:
            ApiError: the API server did not do it.
        """
        raw = await self._client.get(SECRETS, MASTER_KEY_SECRET, self._namespace)
        if StoredKeys.read(raw).keys != keys:
            return
        raw["data"].pop("previous", None)
        path = f"/api/v1/namespaces/{self._namespace}/secrets/{MASTER_KEY_SECRET}"
        try:
            await self._client.request("PUT", path, body=raw, resource=SECRETS)
        except (ConflictError, NotFoundError):
            return  # somebody rotates again

    def _changed(self, old: StoredKeys | None, new: StoredKeys | None) -> None:
        if new is not None and old is not None and new.keys != old.keys:
            self._on_change()


def secret_body(name: str, namespace: str, data: dict[str, bytes]) -> Json:
    """Return the manifest of a Secret."""
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": "Opaque",
        "data": encoded,
    }
