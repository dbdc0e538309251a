# SPDX-License-Identifier: Apache-2.0
"""Uploads that were signed, as quotas and the sweep count them at a real S3 server."""

from datetime import UTC, datetime, timedelta

import pytest
from files_cluster import Swept

from simyard.files.catalog import FileCatalog
from simyard.files.keys import FileOrigin
from simyard.files.quotas import QuotaError
from simyard.files.uploads import Upload


@pytest.mark.parametrize("skew", [timedelta(), timedelta(hours=2), timedelta(hours=-2)])
async def test_uploads_that_were_signed_count_until_their_urls_expire(swept: Swept, skew: timedelta) -> None:
    """Sweep after each upload that is signed and not sent; neither a sweep nor a wrong clock makes it free.

    Each catalog is that of another process, which knows only the sums of the sweep.
    """

    async def sign(number: int, size: int = 40) -> None:
        catalog = FileCatalog(swept.world.access, swept.world.store, clock=lambda: datetime.now(UTC) + skew)
        upload = Upload(f"sha256:{number:064x}", size, owner="ann")
        await catalog.offer_upload(swept.uid, FileOrigin.USER, upload, quota=100)
        await swept.sweep.sweep()

    await sign(0)
    await sign(1)
    with pytest.raises(QuotaError):
        await sign(2)
    await sign(1)
    swept.pass_time(timedelta(minutes=50))
    with pytest.raises(QuotaError):
        await sign(2)
    swept.pass_time(timedelta(minutes=20))
    await swept.sweep.sweep()
    await sign(2)


async def test_a_deleted_file_counts_while_its_url_is_valid(swept: Swept) -> None:
    address = await swept.upload("0" * 60)
    await swept.world.catalog.delete_file(swept.uid, address)
    await swept.sweep.sweep()
    catalog = FileCatalog(swept.world.access, swept.world.store)
    other = Upload(f"sha256:{'0' * 64}", 60, owner="ann")
    with pytest.raises(QuotaError):
        await catalog.offer_upload(swept.uid, FileOrigin.USER, other, quota=100)
    swept.pass_time(timedelta(hours=2))
    await swept.sweep.sweep()
    await catalog.offer_upload(swept.uid, FileOrigin.USER, other, quota=100)
