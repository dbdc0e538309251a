# SPDX-License-Identifier: Apache-2.0
"""Quotas: how many bytes of files a namespace may have.

Nothing counts the files of a namespace while a user waits. The sweep counts them every few minutes and writes the sum
into the store (:class:`NamespaceUsage`). Whoever signs an upload adds what this process has signed since that sum was
counted. Uploads that run during a sweep, or that several replicas sign at the same time, can therefore exceed the quota
by their size; the next sweep counts them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pydantic import ValidationError

from simyard.api.base import ApiModel, Count, Time

MAX_NAMESPACES = 1000
MAX_SIGNED = 10_000
"""The largest number of signed uploads of a namespace that are known one by one; of the others, only the sum is."""
_NEVER = datetime.min.replace(tzinfo=UTC)


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
        counted: the time at which the count began.
    """

    namespace: str
    files: Count
    total_bytes: int
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
    """The uploads of one namespace that were signed after the sums of ``counted``; ``bytes`` is their size."""

    counted: datetime = _NEVER
    uploads: dict[str, tuple[datetime, int]] = field(default_factory=dict)
    bytes: int = 0


class SignedUploads:
    """The uploads that this process has signed since the last sweep, by namespace."""

    def __init__(self) -> None:
        self._signed: OrderedDict[str, _Signed] = OrderedDict()

    def admit(
        self, namespace_uid: str, address: str, size: int, usage: NamespaceUsage | None, quota: int, now: datetime
    ) -> None:
        """Count an upload that is about to be signed; an upload that is counted already is not counted twice.

        Raises:
            QuotaError: the upload does not fit into the quota.
        """
        signed = self._signed.setdefault(namespace_uid, _Signed())
        self._signed.move_to_end(namespace_uid)
        while len(self._signed) > MAX_NAMESPACES:
            self._signed.popitem(last=False)
        if usage is not None and usage.counted > signed.counted:
            signed.counted = usage.counted
            signed.uploads = {name: item for name, item in signed.uploads.items() if item[0] >= usage.counted}
            signed.bytes = sum(item[1] for item in signed.uploads.values())
        if address in signed.uploads:
            return
        used = signed.bytes + (usage.total_bytes if usage else 0)
        if used + size > quota:
            raise QuotaError(size, used, quota)
        if len(signed.uploads) < MAX_SIGNED:
            signed.uploads[address] = (now, size)
        signed.bytes += size
