# SPDX-License-Identifier: Apache-2.0
"""Leader election with a Lease (coordination.k8s.io/v1).

The election keeps two operators from doing the same work; correctness does not depend on it. A holder counts as gone if
its Lease has not changed for the Lease's duration. This process measures the time with its own monotonic clock, because
the clocks of two machines cannot be compared.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from simyard.api.base import Json
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from simyard_sites.kubernetes.resource import Resource

log = logging.getLogger(__name__)

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")


class LeaseLostError(Exception):
    """Error: this process could not renew its Lease in time, so it must stop at once."""


class Lease:
    """A Lease, with the identity under which this process holds it."""

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        duration_seconds: int = 15,
        renew_seconds: float = 3.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self._duration = duration_seconds
        self._interval = renew_seconds
        self._clock = clock
        self._seen_version = ""
        self._seen_at = 0.0
        self._renewed_at = 0.0
        self._holder = ""
        self._led_at = clock()

    @property
    def age_seconds(self) -> float:
        """Seconds since this process last renewed the Lease."""
        return self._clock() - self._renewed_at

    @property
    def leader(self) -> str | None:
        """The identity of another process that was last seen as the leader; None if no other process leads."""
        return (self._holder or "another one") if self._clock() - self._led_at < self._duration else None

    async def acquire(self) -> None:
        """Wait until this process holds the Lease."""
        while not await self._try():  # noqa: ASYNC110 (no event reports an expired Lease)
            await asyncio.sleep(self._interval)
        log.info("leading as %s", self.identity)

    async def hold(self) -> None:
        """Renew the Lease at intervals until a renewal fails.

        Raises:
            LeaseLostError: two thirds of the duration have passed without a renewal. At this time, no other process
                holds the Lease yet.
        """
        while True:
            await asyncio.sleep(self._interval)
            if not await self._try() and self.age_seconds > self._duration * 2 / 3:
                raise LeaseLostError(
                    f"lease {self._namespace}/{self._name} was not renewed for {self.age_seconds:.0f} s"
                )

    async def release(self) -> None:
        """Release the Lease, so that the next leader need not wait until it expires."""
        try:
            current = await self._client.get(LEASES, self._name, self._namespace)
            if current["spec"].get("holderIdentity") == self.identity:
                current["spec"].update(holderIdentity="", leaseDurationSeconds=1)
                await self._write(current)
        except ApiError as error:
            log.info("lease not released: %s", error)

    async def _try(self) -> bool:
        try:
            async with asyncio.timeout(self._interval * 2):
                return await self._acquire_or_renew()
        except (ConflictError, AlreadyExistsError):
            return False
        except (ApiError, TimeoutError) as error:
            log.warning("lease %s/%s: %s", self._namespace, self._name, str(error) or "no answer in time")
            return False

    async def _acquire_or_renew(self) -> bool:
        started = self._clock()
        try:
            current = await self._client.get(LEASES, self._name, self._namespace)
        except NotFoundError:
            body: Json = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": self._spec(transitions=0),
            }
            await self._client.create(LEASES, body, self._namespace)
            self._renewed_at = started
            return True
        spec = current["spec"]
        holder = spec.get("holderIdentity") or ""
        version = str(current["metadata"]["resourceVersion"])
        if version != self._seen_version:
            self._seen_version, self._seen_at = version, started
        expired = started - self._seen_at > float(spec.get("leaseDurationSeconds") or self._duration)
        if holder not in ("", self.identity) and not expired:
            self._holder, self._led_at = str(holder), started
            return False
        transitions = int(spec.get("leaseTransitions") or 0) + (holder != self.identity)
        current["spec"] = self._spec(transitions, acquired=spec.get("acquireTime") if holder == self.identity else None)
        await self._write(current)
        self._renewed_at = started
        return True

    async def _write(self, lease: Json) -> None:
        path = f"/apis/{LEASES.api_version}/namespaces/{self._namespace}/leases/{self._name}"
        await self._client.request("PUT", path, body=lease, resource=LEASES)

    def _spec(self, transitions: int, acquired: str | None = None) -> Json:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._duration,
            "acquireTime": acquired or now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }
