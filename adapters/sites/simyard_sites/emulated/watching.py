# SPDX-License-Identifier: Apache-2.0
"""Sends the changes of an emulated cloud to its watchers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import TypeVar

from simyard_sites.base import Gone, Machine
from simyard_sites.emulated import protocol
from simyard_sites.emulated.cloud import Change, Cloud
from simyard_sites.emulated.protocol import Batch, BatchKind

_RESYNC_MILLISECONDS = 30_000  # Milliseconds of the cloud's own time.
_Item = TypeVar("_Item")


class Watchers:
    """The watchers of one cloud."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._watchers: set[_Watcher] = set()

    def report(self, change: Change) -> None:
        """Report a change to all watchers.

        If the change is lost, they get a snapshot after 30 s of the cloud's time.
        """
        resync_seconds = self._cloud.settings.compute_seconds(_RESYNC_MILLISECONDS)
        for watcher in self._watchers:
            if change.lost:
                watcher.lose(resync_seconds)
            else:
                watcher.report(change)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send batches until the client disconnects."""
        sending = asyncio.create_task(self._send_batches(writer))
        try:
            await reader.read()
        finally:
            sending.cancel()
            await asyncio.wait([sending])

    async def _send_batches(self, writer: asyncio.StreamWriter) -> None:
        async def send(batch: Batch) -> None:
            writer.write(protocol.encode(batch))
            await writer.drain()

        watcher = _Watcher()
        self._watchers.add(watcher)
        try:
            while True:
                if watcher.needs_snapshot():
                    for ids in _parts(self._cloud.list_ids()):
                        await send(Batch(BatchKind.SNAPSHOT, self._present(ids)))
                    await send(Batch(BatchKind.CHANGES))
                changes = await watcher.collect(protocol.HEARTBEAT_SECONDS)
                for part in _parts(list(changes.values())):
                    machines = self._present(change.id for change in part)
                    here = {machine.id for machine in machines}
                    gone = [Gone(change.id, change.name) for change in part if change.id not in here]
                    await send(Batch(BatchKind.CHANGES, machines, gone))
        except ConnectionError:
            pass  # The client disconnected.
        finally:
            self._watchers.discard(watcher)

    def _present(self, ids: Iterable[str]) -> list[Machine]:
        return [machine for machine in map(self._cloud.find_machine, ids) if machine]


class _Watcher:
    """The unsent changes for one client: to limit memory, only the last change of each machine."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changes: dict[str, Change] = {}
        self._changed = asyncio.Event()
        self._snapshot_at: float | None = self._loop.time()

    def report(self, change: Change) -> None:
        self._changes[change.id] = change
        self._changed.set()

    def lose(self, resync_seconds: float) -> None:
        """Plan a snapshot after ``resync_seconds``, because a change is lost."""
        if self._snapshot_at is None:
            self._snapshot_at = self._loop.time() + resync_seconds
            self._changed.set()  # Wake the sender, so that it sees the new time.

    def needs_snapshot(self) -> bool:
        """Return True, once, if a snapshot is due."""
        if self._snapshot_at is None or self._loop.time() < self._snapshot_at:
            return False
        self._snapshot_at = None
        return True

    async def collect(self, timeout_seconds: float) -> dict[str, Change]:
        """Return and clear the changes; wait until there is one or a snapshot is due, at most ``timeout_seconds``."""
        end = self._loop.time() + timeout_seconds
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(end if self._snapshot_at is None else min(end, self._snapshot_at)):
                await self._changed.wait()
        self._changed.clear()
        changes, self._changes = self._changes, {}
        return changes


def _parts(items: Sequence[_Item]) -> list[Sequence[_Item]]:
    """Split the items into parts that fit into a line; without items, there is one empty part."""
    return [items[start : start + protocol.ITEMS] for start in range(0, len(items) or 1, protocol.ITEMS)]
