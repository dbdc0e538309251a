# SPDX-License-Identifier: Apache-2.0
"""Kind StudyRecord: what a small study keeps in an installation without a file store."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simyard.api.base import IMMUTABLE, ApiModel, Metadata

MAX_TASKS_WITHOUT_STORE = 1_000
"""Maximum number of tasks of a study in an installation without a file store."""
MAX_RECORD_BYTES = 128 * 1024
"""Maximum size of the content of a record."""
MAX_STUDY_RECORD_BYTES = 8 * 1024 * 1024
"""Maximum size of all rows of a study in an installation without a file store, because they are in etcd."""


class StudyRecordSpec(ApiModel):
    """Content of the record."""

    study: Annotated[str, Field(max_length=253, description="Name of the Study.", json_schema_extra=IMMUTABLE)]
    content: Annotated[
        str,
        Field(
            max_length=4 * ((MAX_RECORD_BYTES + 2) // 3),
            description="Base64 of the rows of a chunk (compressed CSV), or of the uid of the worker that got a chunk.",
            json_schema_extra=IMMUTABLE,
        ),
    ] = ""
    summary: Annotated[
        str, Field(max_length=32_768, description="Summary of the rows.", json_schema_extra=IMMUTABLE)
    ] = ""


class StudyRecord(ApiModel):
    """A StudyRecord keeps the rows of a chunk of a Study, or a note about a chunk, if there is no file store.

    The platform creates it. It is deleted with its Study.
    """

    metadata: Metadata
    spec: StudyRecordSpec
