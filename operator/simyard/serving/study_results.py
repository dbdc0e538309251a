# SPDX-License-Identifier: Apache-2.0
"""Serves the subresource ``studies/results``: signed URLs of the rows of a study."""

from __future__ import annotations

from collections.abc import Mapping

from simyard.api.base import Json
from simyard.api.names import STUDIES, STUDY_RESULTS, SUBRESOURCES_API_VERSION
from simyard.files.catalog import FileCatalog
from simyard.files.keys import StudyKeys
from simyard.files.store import StoreError
from simyard.fleet.studies.records import list_part_page
from simyard.serving.calls import ResourceCall
from simyard.serving.files import Files
from simyard.serving.inputs import read_count
from simyard.serving.status import StatusError, StatusReason, Subject, translate_api_error
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import ApiError

DEFAULT_LIMIT = 500
MAX_RECORDS = 50
"""Maximum number of chunks in an answer that has their rows: these need 9 MB at most."""
RECORDS = "records:"
"""Beginning of the token of the next page of StudyRecords."""


class StudyResults:
    """The server of the rows of studies, for users whose rights are already checked."""

    def __init__(self, client: KubeClient, catalog: FileCatalog | None, files: Files) -> None:
        self._client = client
        self._catalog = catalog
        self._files = files

    async def find_study(self, call: ResourceCall) -> Json:
        """Return name, namespace and uid of a study.

        Raises:
            StatusError: the study does not exist.
        """
        try:
            study = await self._client.get(STUDIES, call.name, call.namespace)
        except ApiError as error:
            raise translate_api_error(Subject(STUDIES, call.name), error) from error
        metadata = {key: study["metadata"][key] for key in ("name", "namespace", "uid")}
        return {"apiVersion": SUBRESOURCES_API_VERSION, "kind": STUDIES.kind, "metadata": metadata}

    async def list_parts(self, call: ResourceCall, query: Mapping[str, str]) -> Json:
        """Return the stored chunks of a study in the order of their tasks.

        Each has a request that downloads its rows, or the rows themselves if the study has no file store.

        Raises:
            StatusError: the study does not exist, or the file store does not answer.
        """
        metadata = (await self.find_study(call))["metadata"]
        items: list[Json] = []
        token, limit = query.get("continue", ""), min(read_count(query, "limit") or DEFAULT_LIMIT, DEFAULT_LIMIT)
        if self._catalog is not None and not token.startswith(RECORDS):
            namespace = await self._files.find_namespace(call.namespace)
            keys = StudyKeys(namespace.uid, metadata["uid"])
            try:
                parts, following = await self._catalog.list_study_parts(keys, limit, token)
            except StoreError as error:
                retry = 1 if error.retryable else 0
                raise StatusError(StatusReason.SERVICE_UNAVAILABLE, str(error), retry_after_seconds=retry) from error
            items = [{"chunk": part.chunk, "bytes": part.size, "download": part.request.to_json()} for part in parts]
            if following:
                metadata["continue"] = following
        if not items:  # the study may have begun without a file store
            limit = min(limit, MAX_RECORDS)
            try:
                found, following = await list_part_page(
                    self._client, call.namespace, metadata["uid"], limit, token.removeprefix(RECORDS)
                )
            except ApiError as error:
                raise translate_api_error(Subject(STUDIES, call.name), error) from error
            items = [{"chunk": chunk, "bytes": len(rows) * 3 // 4, "content": rows} for chunk, rows in found]
            if following:
                metadata["continue"] = f"{RECORDS}{following}"
        return {"apiVersion": SUBRESOURCES_API_VERSION, "kind": STUDY_RESULTS, "metadata": metadata, "items": items}
