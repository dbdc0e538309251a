# SPDX-License-Identifier: Apache-2.0
"""Quotas of files: sums of the last sweep, and what was signed since."""

from datetime import UTC, datetime, timedelta

import pytest

from simyard.files.quotas import MAX_SIGNED, NamespaceUsage, QuotaError, SignedUploads

NOW = datetime(2026, 11, 24, tzinfo=UTC)


def usage(size: int, minutes: int = 0, offered: int = 0) -> NamespaceUsage:
    counted = NOW + timedelta(minutes=minutes)
    return NamespaceUsage(namespace="team", files=1, total_bytes=size, offered_bytes=offered, counted=counted)


def test_files_and_offers_that_were_counted_and_signed_uploads_count_together() -> None:
    signed = SignedUploads()
    signed.admit("uid", "a", 30, usage(40, offered=10), 100)
    with pytest.raises(QuotaError) as refused:
        signed.admit("uid", "b", 30, usage(40, offered=10), 100)
    assert (refused.value.size, refused.value.used, refused.value.quota) == (30, 80, 100)
    signed.admit("uid", "c", 20, usage(40, offered=10), 100)
    signed.admit("other", "b", 30, usage(40, offered=10), 100)


def test_an_upload_that_is_signed_again_counts_once_with_its_largest_size() -> None:
    signed = SignedUploads()
    for size in (1, 60, 60, 1):
        signed.admit("uid", "a", size, None, 100)
    signed.admit("uid", "b", 40, None, 100)
    with pytest.raises(QuotaError):
        signed.admit("uid", "a", 61, None, 100)


def test_a_recorded_upload_is_in_the_sums_already() -> None:
    signed = SignedUploads()
    for _ in range(2):
        signed.admit("uid", "a", 60, usage(0, offered=60), 100, recorded_size=60)
    with pytest.raises(QuotaError):
        signed.admit("uid", "a", 120, usage(0, offered=60), 100, recorded_size=60)
    signed.admit("uid", "b", 40, usage(0, offered=60), 100)


def test_a_sweep_replaces_only_the_uploads_that_were_recorded_before_it() -> None:
    signed = SignedUploads()
    for address, minute in (("a", 0), ("b", 6)):
        signed.admit("uid", address, 30, usage(0), 100)
        signed.note_record("uid", address, NOW + timedelta(minutes=minute))
    signed.admit("uid", "not recorded yet", 30, usage(0), 100)
    signed.admit("uid", "c", 10, usage(0, minutes=5, offered=30), 100)
    with pytest.raises(QuotaError) as refused:
        signed.admit("uid", "d", 1, usage(0, minutes=5, offered=30), 100)
    assert refused.value.used == 100


def test_an_upload_that_was_not_recorded_is_not_signed_and_does_not_count() -> None:
    signed = SignedUploads()
    signed.admit("uid", "a", 100, None, 100)
    signed.note_record("uid", "a", None)
    signed.admit("uid", "b", 100, None, 100)


def test_many_small_uploads_are_counted_as_a_sum() -> None:
    signed = SignedUploads()
    for number in range(MAX_SIGNED + 5):
        signed.admit("uid", str(number), 1, None, MAX_SIGNED + 5)
        signed.note_record("uid", str(number), NOW)
    with pytest.raises(QuotaError):
        signed.admit("uid", "one more", 1, usage(0, minutes=-1), MAX_SIGNED + 5)
    signed.admit("uid", "one more", 1, usage(0, minutes=1), MAX_SIGNED + 5)


def test_sums_survive_the_store_and_unreadable_ones_count_as_none() -> None:
    assert NamespaceUsage.from_bytes(usage(5).to_bytes()) == usage(5)
    assert NamespaceUsage.from_bytes(b"{}") is None
    assert NamespaceUsage.from_bytes(None) is None
