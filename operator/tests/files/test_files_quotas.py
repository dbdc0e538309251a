# SPDX-License-Identifier: Apache-2.0
"""Quotas of files: sums of the last sweep, and what was signed since."""

from datetime import UTC, datetime, timedelta

import pytest

from simyard.files.quotas import MAX_SIGNED, NamespaceUsage, QuotaError, SignedUploads

NOW = datetime(2026, 11, 24, tzinfo=UTC)


def usage(size: int, minutes: int = 0) -> NamespaceUsage:
    return NamespaceUsage(namespace="team", files=1, total_bytes=size, counted=NOW + timedelta(minutes=minutes))


def test_what_was_counted_and_what_was_signed_since_count_together() -> None:
    signed = SignedUploads()
    signed.admit("uid", "a", 30, usage(50), 100, NOW)
    with pytest.raises(QuotaError) as refused:
        signed.admit("uid", "b", 30, usage(50), 100, NOW)
    assert (refused.value.size, refused.value.used, refused.value.quota) == (30, 80, 100)
    signed.admit("uid", "c", 20, usage(50), 100, NOW)
    signed.admit("other", "b", 30, usage(50), 100, NOW)


def test_an_upload_that_is_signed_again_counts_once() -> None:
    signed = SignedUploads()
    for _ in range(5):
        signed.admit("uid", "a", 60, None, 100, NOW)


def test_a_new_sweep_replaces_what_was_signed_before_it() -> None:
    signed = SignedUploads()
    signed.admit("uid", "a", 60, usage(0), 100, NOW)
    signed.admit("uid", "b", 20, usage(0), 100, NOW + timedelta(minutes=6))
    signed.admit("uid", "c", 20, usage(60, minutes=5), 100, NOW + timedelta(minutes=7))
    with pytest.raises(QuotaError):
        signed.admit("uid", "d", 1, usage(60, minutes=5), 100, NOW + timedelta(minutes=7))


def test_many_small_uploads_are_counted_as_a_sum() -> None:
    signed = SignedUploads()
    for number in range(MAX_SIGNED + 5):
        signed.admit("uid", str(number), 1, None, MAX_SIGNED + 5, NOW)
    with pytest.raises(QuotaError):
        signed.admit("uid", "one more", 1, None, MAX_SIGNED + 5, NOW)
    signed.admit("uid", "one more", 1, usage(0, minutes=1), MAX_SIGNED + 5, NOW + timedelta(minutes=2))


def test_sums_survive_the_store_and_unreadable_ones_count_as_none() -> None:
    assert NamespaceUsage.from_bytes(usage(5).to_bytes()) == usage(5)
    assert NamespaceUsage.from_bytes(b"{}") is None
    assert NamespaceUsage.from_bytes(None) is None
