# SPDX-License-Identifier: Apache-2.0
"""Loads the points of studies that are in a file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from simyard.api.study import Study, TableDesign
from simyard.files.keys import FileKey, FileOrigin, StudyKeys
from simyard.files.store import ObjectStore
from simyard.plan.studies.table_file import MAX_FILE_BYTES, PATH, read_table_file
from simyard_adapter.declarations import Action, InvalidValueError


async def load_table(
    store: ObjectStore | None, study: Study, action: Action, get_keys: Callable[[Study], Awaitable[StudyKeys]]
) -> TableDesign | None:
    """Return the points in the file of a design; None if they are not in a file.

    Raises:
        InvalidValueError: the file cannot be used.
        StoreError: the store does not answer.
    """
    address = study.spec.design.table.file if study.spec.design.table is not None else None
    if address is None:
        return None
    if store is None:
        raise InvalidValueError(PATH, "this installation has no file store: write the points in rows")
    namespace_uid = (await get_keys(study)).namespace_uid
    for origin in FileOrigin:
        key = str(FileKey(namespace_uid, origin, address))
        found = await store.find_object(key)
        if found is not None and found.size > MAX_FILE_BYTES:
            raise InvalidValueError(PATH, f"has {found.size} bytes, at most {MAX_FILE_BYTES} are accepted")
        if found is not None and (content := await store.get_object(key)) is not None:
            return await asyncio.to_thread(read_table_file, content, action.parameters)
    raise InvalidValueError(PATH, f"the namespace has no file {address}: upload it with kubectl simyard cp")
