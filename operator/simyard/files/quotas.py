# SPDX-License-Identifier: Apache-2.0
"""Quotas: how many bytes of files a namespace may have.

Nothing counts the files of a namespace while a user waits. The sweep counts them every few minutes and writes the sums
into the store (:class:`NamespaceUsage`): the files, and the uploads that were signed and can still take place. The
catalog records each upload in the store before it signs it, and adds what this process has signed since the sums were
counted. An upload is forgotten here only when the sweep has seen its record: all times are those of the store's clock.
Several replicas that sign at the same time can exceed the quota by what each of them signs between two sweeps.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pydantic import ValidationError

from simyard.api.base import ApiModel, Count, Time

MAX_NAMESPACES = 10_000
"""The largest number of namespaces of which uploads are known; the one that was used least recently is forgotten."""
MAX_SIGNED = 10_000
"""The largest number of signed uploads of a namespace that are known one by one; of the others, only the sum is."""
CLOCK_MARGIN = timedelta(seconds=2)
"""The precision of the store's times."""
NEVER = datetime.min.replace(tzinfo=UTC)
_NOT_YET = datetime.max.replace(tzinfo=UTC)


class QuotaError(Exception):
    """An upload that does not fit into the quota of its namespace. All sizes are bytes."""

    def __init__(self, size: int, used: int, quota: int) -> None:
        super().__init__(f"exceeded the quota of files: requested {size} bytes, used {used} bytes, quota {quota} bytes")
        self.size = size
        self.used = used
        self.quota = quota


class NamespaceUsage(ApiModel):
    """The sums of a namespace's files, as the last sweep counted them.

    Attributes:
        namespace: the name of the namespace.
        files: the number of files.
        total_bytes: the size of all files.
        offered_bytes: the size of the uploads that were signed, and that can still take place or go on.
        counted: the time at which the count began.
    """

    namespace: str
    files: Count
    total_bytes: int
    offered_bytes: int = 0
    counted: Time

    @classmethod
    def from_bytes(cls, content: bytes | None) -> NamespaceUsage | None:
        """Read the sums from the store; None if there are none, or none that this version can read."""
        if content is None:
            return None
        try:
            return cls.model_validate_json(content)
        except ValidationError:
            return None

    def to_bytes(self) -> bytes:
        """Return the sums as the store keeps them."""
        return self.model_dump_json(by_alias=True).encode()


@dataclass(slots=True)
class _Signed:
    """The uploads of one namespace that the sums of ``counted`` may not contain.

    Attributes:
        counted: the time of the newest sums.
        uploads: by address, the time of the record in the store, and the size.
        bytes: the size of all uploads, and of further ones.
        more_bytes: the size of the further ones.
        more_recorded: the time of the newest record of these.
    """

    counted: datetime = NEVER
    uploads: dict[str, tuple[datetime, int]] = field(default_factory=dict)
    bytes: int = 0
    more_bytes: int = 0
    more_recorded: datetime = NEVER

    def forget_counted(self, counted: datetime) -> None:
        self.counted, before = counted, counted - CLOCK_MARGIN
        self.uploads = {name: item for name, item in self.uploads.items() if item[0] >= before}
        if self.more_recorded < before:
            self.more_bytes = 0
        self.bytes = self.more_bytes + sum(size for _, size in self.uploads.values())


class SignedUploads:
    """The uploads that this process has signed since the last sweep, by namespace."""

    def __init__(self) -> None:
        self._signed: OrderedDict[str, _Signed] = OrderedDict()

    def admit(
        self,
        namespace_uid: str,
        address: str,
        size: int,
        usage: NamespaceUsage | None,
        quota: int,
        recorded_size: int = 0,
    ) -> None:
        """Count an upload that is about to be recorded.

        A record of the same upload is a part of the sums already, or of what another process has signed. So only the
        bytes above ``recorded_size`` count.

        Raises:
            QuotaError: the upload does not fit into the quota.
        """
        signed = self._signed.setdefault(namespace_uid, _Signed())
        self._signed.move_to_end(namespace_uid)
        while len(self._signed) > MAX_NAMESPACES:
            self._signed.popitem(last=False)
        if usage is not None and usage.counted > signed.counted:
            signed.forget_counted(usage.counted)
        recorded, known = signed.uploads.get(address, (_NOT_YET, 0))
        added = max(0, size - max(known, recorded_size))
        used = signed.bytes + (usage.total_bytes + usage.offered_bytes if usage else 0)
        if added and used + added > quota:
            raise QuotaError(size, used, quota)
        signed.bytes += added
        if known or len(signed.uploads) < MAX_SIGNED:
            signed.uploads[address] = (recorded, known + added)
        else:
            signed.more_bytes += added

    def note_record(self, namespace_uid: str, address: str, recorded: datetime | None) -> None:
        """Note the time at which the store recorded an admitted upload; None if it did not, so nothing is signed."""
        if (signed := self._signed.get(namespace_uid)) is None:
            return
        if (item := signed.uploads.get(address)) is None:
            signed.more_recorded = max(signed.more_recorded, recorded or NEVER)
        elif recorded is not None:
            signed.uploads[address] = (recorded, item[1])
        elif item[0] == _NOT_YET:
            signed.bytes -= item[1]
            del signed.uploads[address]
