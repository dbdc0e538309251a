# SPDX-License-Identifier: Apache-2.0
"""The sweep of the file store: it counts the files of each namespace, and deletes what nobody needs.

A pass compares the store with the cluster and keeps no state of its own, so it can end at any point and begin again,
and two operators may sweep at once. It deletes a file only if no object of the namespace and no row of a study names
it *and* nobody has offered or downloaded it within the retention. Both can change while a pass runs:

- A use. The sweep writes a record that it will delete the file, and then looks for a recent use. The catalog writes the
  use, and then looks for the sweep's record. So at least one of the two sees the other (Dekker's rule), and the catalog
  asks its client to try again. A check without this record could delete a file after a client was told that it is
  present.
- An object that names the file. The sweep reads the objects again after it wrote its records.

The files of a namespace that is gone are deleted an hour after a pass first did not find its uid, if a request for the
namespace itself agrees. All ages are measured by the store's own clock: a wrong clock of this machine deletes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NoReturn, Protocol

from simyard.files.access import StoreAccess
from simyard.files.inventory import ABANDONED, ListedFile, find_offered_size, list_used_files
from simyard.files.keys import (
    STALE_DELETING,
    FileKey,
    FileOrigin,
    StudyKeys,
    UseKey,
    make_deleting_key,
    make_orphaned_key,
    make_studies_prefix,
    make_usage_key,
    make_use_prefix,
)
from simyard.files.quotas import NamespaceUsage
from simyard.files.store import ObjectStore, StoreError
from simyard.files.study_files import StudyRows, find_files_of_studies
from simyard.files.sweep_metrics import DELETED, FAILED, SUCCEEDED, show_usages
from simyard_sites.kubernetes.errors import ApiError

log = logging.getLogger(__name__)

INSTALLATION_KEY = "simyard-installation"
"""The object that names the cluster to which a bucket belongs."""
CLOCK_KEY = "simyard-sweep"
"""The object whose time of change is the store's present time."""
ORPHAN_GRACE = timedelta(hours=1)
MAX_DELETE_SECONDS = 60.0
"""Time after which a sweep gives up deletions that it has announced. It is much shorter than STALE_DELETING."""
MAX_DELETIONS = 20_000
"""The largest number of files that one pass deletes in a namespace; the next pass goes on."""
BATCH = 200
"""Files that are announced, checked and deleted together; other requests are sent in batches of this size as well."""
MAX_NAMED = 10
"""The largest number of namespaces that the error of a pass names."""
_UID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class SweepError(Exception):
    """A pass that was not made, or not for all namespaces."""


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """The settings of the sweep.

    Attributes:
        retention: the time for which a file is kept that no object names; None: for ever.
        interval_seconds: the time between two passes.
        retry_seconds: the time after a pass that failed.
    """

    retention: timedelta | None = timedelta(days=30)
    interval_seconds: float = 600.0
    retry_seconds: float = 60.0


class Cluster(Protocol):
    """The namespaces and objects of a cluster (:class:`simyard.files.references.References`)."""

    def is_watched(self, namespace: str) -> bool:
        """Return whether this installation serves a namespace."""

    async def identify_cluster(self) -> str:
        """Return the uid of the cluster."""

    async def list_namespaces(self) -> dict[str, str]:
        """Return the names of all namespaces by their uids."""

    async def find_uid(self, namespace: str) -> str:
        """Return the uid of a namespace as it is now; empty if there is none with the name."""

    async def find_named_files(self, namespace: str) -> set[str]:
        """Return the addresses of all files that objects of a namespace name."""

    async def list_studies(self, namespace: str) -> dict[str, StudyRows]:
        """Return the rows of all studies of a namespace, by the uid of the study."""


class FileSweep:
    """The sweep of one bucket for the namespaces of one cluster."""

    def __init__(
        self,
        store: ObjectStore,
        cluster: Cluster,
        settings: SweepSettings,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._settings = settings
        self._monotonic = monotonic
        self._usages: dict[str, NamespaceUsage] = {}
        """The sums of each namespace that the last pass found; old ones if the pass failed for the namespace."""

    async def run(self) -> NoReturn:
        """Sweep until cancelled."""
        while True:
            try:
                await self.sweep()
                pause = self._settings.interval_seconds
            except Exception as error:  # noqa: BLE001 - no defect of the sweep ends the operator
                FAILED.inc()
                pause = self._settings.retry_seconds
                _log_failure("the sweep of the file store failed and will be repeated", error)
            await asyncio.sleep(pause)

    async def sweep(self) -> None:
        """Make one pass.

        Raises:
            StoreError: the store did not answer.
            ApiError: the API server did not answer.
            SweepError: the bucket belongs to another cluster, or the pass failed for some namespaces and was made for
                the others.
        """
        await self._claim_bucket()
        now = await self._read_clock()
        live = await self._cluster.list_namespaces()
        counted: dict[str, NamespaceUsage] = {}
        failed: set[str] = set()
        for uid in await self._store.list_prefixes():
            if not _UID.fullmatch(uid) or (uid in live and not self._cluster.is_watched(live[uid])):
                continue
            try:
                if uid not in live:
                    await self._sweep_orphan(uid, now)
                else:
                    counted[uid] = await self._sweep_namespace(uid, live[uid], now)
            except Exception as error:  # noqa: BLE001 - one namespace holds up no other, whatever is wrong with it
                failed.add(uid)
                _log_failure(f"the files of the namespace {live.get(uid, uid)} were not swept", error)
        self._usages = {uid: usage for uid, usage in self._usages.items() if uid in failed} | counted
        show_usages(list(self._usages.values()))
        await self._abort_uploads(live, now)
        if failed:
            names = ", ".join(sorted(live.get(uid, uid) for uid in failed)[:MAX_NAMED])
            raise SweepError(f"{len(failed)} namespaces were not swept: {names}{', ...' * (len(failed) > MAX_NAMED)}")
        SUCCEEDED.set_to_current_time()

    async def _claim_bucket(self) -> None:
        """Check that the bucket belongs to this cluster: to another one, all its namespaces seem to be gone."""
        uid = await self._cluster.identify_cluster()
        content = await self._store.get_object(INSTALLATION_KEY)
        if content is None:
            await self._store.put_object(INSTALLATION_KEY, json.dumps({"cluster": uid}).encode())
        elif content != json.dumps({"cluster": uid}).encode():
            raise SweepError(
                f"the bucket of the file store belongs to another cluster, so nothing is deleted: use a bucket of its "
                f"own for each cluster, or delete the object {INSTALLATION_KEY} if the cluster was created again"
            )

    async def _read_clock(self) -> datetime:
        await self._store.put_object(CLOCK_KEY)
        found = await self._store.find_object(CLOCK_KEY)
        if found is None:
            raise StoreError(f"the file store does not keep objects: {CLOCK_KEY} is gone after it was written")
        return found.modified

    # Namespaces that exist

    async def _sweep_namespace(self, uid: str, namespace: str, now: datetime) -> NamespaceUsage:
        named: set[str] | None = None
        retention = self._settings.retention
        before = None if retention is None else now - retention
        files = size = offered = 0
        expired: list[ListedFile] = []
        surplus: list[str] = []
        async for file in list_used_files(self._store, uid):
            # Nothing is deleted while a list is read: the marker of its next page can be a key that is gone.
            if len(surplus) < MAX_DELETIONS:
                surplus += _list_old_uses(file, now - ABANDONED)
            if file.size is None:
                offered += find_offered_size(file.key, file.uses, now)
                continue
            files, size = files + 1, size + file.size
            if before is None or file.last_used >= before or len(expired) == MAX_DELETIONS:
                continue
            if named is None:  # most passes find no old file, and need no objects
                named = await self._cluster.find_named_files(namespace)
            if file.key.address not in named:
                expired.append(file)
        if expired:
            expired = await self._keep_files_of_studies(uid, namespace, expired)
        await self._delete_all(surplus)
        for start in range(0, len(expired), BATCH):
            assert before is not None, "else nothing expires"
            for gone in await self._delete_expired(uid, namespace, expired[start : start + BATCH], before):
                files, size = files - 1, size - (gone.size or 0)
        await self._delete_old_records(uid, "open", now - ABANDONED)
        await self._delete_old_records(uid, "deleting", now - STALE_DELETING)
        size += await self._sweep_studies(uid, namespace)
        await self._store.delete_object(make_orphaned_key(uid))
        usage = NamespaceUsage(namespace=namespace, files=files, total_bytes=size, offered_bytes=offered, counted=now)
        await self._store.put_object(make_usage_key(uid), usage.to_bytes())
        return usage

    async def _sweep_studies(self, uid: str, namespace: str) -> int:
        """Delete the objects of studies that are gone, and return the size of the results of the others.

        The objects are listed first: a study exists before its first object.
        """
        stored = await self._store.list_prefixes(make_studies_prefix(uid))
        live = await self._cluster.list_studies(namespace)
        gone = [study for study in stored if study not in live and _UID.fullmatch(study)]
        if gone and await self._cluster.find_uid(namespace) != uid:  # else the studies are those of another namespace
            return 0
        for study in gone:
            await self._delete_prefix(StudyKeys(uid, study).prefix)
            log.info("deleted the results of the study with the uid %s in %s, which is gone", study, namespace)
        DELETED.labels("studies").inc(len(gone))
        return sum(rows.size for rows in live.values())

    async def _keep_files_of_studies(self, uid: str, namespace: str, expired: Sequence[ListedFile]) -> list[ListedFile]:
        """Record a use of those files that rows of studies name, and return the others."""
        live = await self._cluster.list_studies(namespace)
        studies = [StudyKeys(uid, study) for study, rows in sorted(live.items()) if rows.name_files]
        named = await find_files_of_studies(self._store, studies, {file.key.address for file in expired})
        kept = [file for file in expired if file.key.address in named]
        uses = [file.uses[-1].key if file.uses else str(UseKey(file.key)) for file in kept]
        await self._run_all(self._store.put_object, uses)
        return [file for file in expired if file.key.address not in named]

    async def _delete_prefix(self, prefix: str) -> int:
        """Delete all objects whose keys begin with a prefix; return their number."""
        deleted = 0
        while True:  # the first page again and again, because the marker of the next one is deleted
            page, _ = await self._store.list_object_page(prefix)
            if not page:
                return deleted
            await self._delete_all(item.key for item in page)
            deleted += len(page)

    async def _delete_expired(
        self, uid: str, namespace: str, expired: Sequence[ListedFile], before: datetime
    ) -> list[ListedFile]:
        """Delete those files that are still not needed, and return them."""
        started = self._monotonic()
        announced = [make_deleting_key(uid, file.key.address) for file in expired]
        deleted = []
        try:
            await self._run_all(self._store.put_object, announced)
            named = await self._cluster.find_named_files(namespace)
            if await self._cluster.find_uid(namespace) == uid:  # else the names are those of another namespace
                for file in expired:
                    if self._monotonic() - started > MAX_DELETE_SECONDS:
                        break
                    if file.key.address not in named and await self._delete_unused(file.key, before):
                        deleted.append(file)
        except Exception:
            with contextlib.suppress(StoreError):  # users of these files would be asked to wait for 10 minutes
                await self._delete_all(announced)
            raise
        await self._delete_all(announced)
        if deleted:
            log.info("deleted %d files of %s that were not used since %s", len(deleted), namespace, before.date())
            DELETED.labels("expired").inc(len(deleted))
        return deleted

    async def _delete_unused(self, key: FileKey, before: datetime) -> bool:
        """Delete a file unless it was used meanwhile; return whether it is deleted."""
        uses, _ = await self._store.list_object_page(make_use_prefix(key))
        found = await self._store.find_object(str(key))
        if any(item.modified >= before for item in (*uses, *([found] if found is not None else []))):
            return False
        await self._store.delete_object(str(key))
        await self._delete_all(item.key for item in uses)
        return True

    async def _delete_old_records(self, uid: str, kind: str, before: datetime) -> None:
        records = self._store.list_objects(f"{uid}/{kind}/")
        await self._delete_all([item.key async for item in records if item.modified < before][:MAX_DELETIONS])

    # Namespaces that are gone

    async def _sweep_orphan(self, uid: str, now: datetime) -> None:
        """Delete everything of a namespace that is gone, an hour after a pass did not find it for the first time."""
        mark = await self._store.find_object(make_orphaned_key(uid))
        if mark is None:
            await self._store.put_object(make_orphaned_key(uid))
            return None
        if mark.modified > now - ORPHAN_GRACE:
            return None
        usage = NamespaceUsage.from_bytes(await self._store.get_object(make_usage_key(uid)))
        if usage is not None and await self._cluster.find_uid(usage.namespace) == uid:
            return await self._store.delete_object(make_orphaned_key(uid))
        if uid in await self._cluster.list_namespaces():
            return await self._store.delete_object(make_orphaned_key(uid))
        files = 0
        for kind in (*FileOrigin, "used", "open", "deleting", "studies"):
            deleted = await self._delete_prefix(f"{uid}/{kind}/")
            files += deleted if kind in tuple(FileOrigin) else 0
        await self._delete_all([make_usage_key(uid), make_orphaned_key(uid)])
        log.info("deleted %d files of the namespace with the uid %s, which is gone", files, uid)
        DELETED.labels("orphaned").inc(files)
        return None

    # Uploads in parts

    async def _abort_uploads(self, live: dict[str, str], now: datetime) -> None:
        """Abort uploads in parts that nobody continued for a day, and those of namespaces that are gone."""
        aborted = 0
        async for upload in self._store.list_uploads():
            key = FileKey.parse(upload.key)
            if key is None or not _UID.fullmatch(key.namespace_uid) or upload.initiated > now - ABANDONED:
                continue
            if key.namespace_uid in live:
                if not self._cluster.is_watched(live[key.namespace_uid]):
                    continue
                records, _ = await self._store.list_object_page(f"{key.namespace_uid}/open/{key.address}.")
                if any(record.modified > now - ABANDONED for record in records):
                    continue
            await self._store.abort_upload(upload.key, upload.upload_id)
            aborted += 1
        DELETED.labels("abandoned").inc(aborted)

    async def _delete_all(self, keys: Iterable[str]) -> None:
        await self._run_all(self._store.delete_object, list(keys))

    async def _run_all(self, request: Callable[[str], Awaitable[object]], keys: Sequence[str]) -> None:
        """Send a request for each key, in batches; raise the first error at the end of its batch."""
        for start in range(0, len(keys), BATCH):
            tasks = (request(key) for key in keys[start : start + BATCH])
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome


def _log_failure(text: str, error: Exception) -> None:
    """Log an error, with its place in the code if it is a defect."""
    expected = isinstance(error, StoreError | ApiError | SweepError)
    log.error("%s: %s", text, error, exc_info=None if expected else error)


def _list_old_uses(file: ListedFile, before: datetime) -> list[str]:
    """Return the keys of the use records that have no file, or that a newer one replaces, when they are old."""
    surplus = file.uses if file.size is None else file.uses[:-1]
    return [item.key for item in surplus if item.modified < before]


async def run_sweep(access: StoreAccess, cluster: Cluster, settings: SweepSettings) -> NoReturn:
    """Sweep a bucket until cancelled."""
    async with ObjectStore(access) as store:
        await FileSweep(store, cluster, settings).run()
    raise AssertionError("the sweep does not end")
