# SPDX-License-Identifier: Apache-2.0
"""Redirects OCCI clients that download a file to a signed URL of the file store.

The frontend has no access to the file store. It asks the aggregated API for the signed URL, after it has checked that
the user has the right that the aggregated API demands: ``get`` on ``files``.
"""

from __future__ import annotations

from simyard.api.names import FILES
from simyard.frontend.access import Access, Permission
from simyard.frontend.exchange import Identity
from simyard.occi.errors import OcciError
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import ApiError, NotFoundError


class Downloads:
    """The signed URLs of the files of one namespace, for users of its frontend."""

    def __init__(self, client: KubeClient, access: Access, namespace: str) -> None:
        self._client = client
        self._access = access
        self._namespace = namespace

    async def find_url(self, identity: Identity, address: str) -> str:
        """Return a signed URL that downloads a file.

        Raises:
            OcciError: 403, 404, or 503 if the aggregated API or the file store does not answer.
        """
        await self._access.check(identity, Permission("get", FILES, address))
        try:
            found = await self._client.get(FILES, address, self._namespace)
            return str(found["status"]["download"]["url"])
        except NotFoundError:
            raise OcciError(404, f"namespace {self._namespace} has no file {address}") from None
        except (ApiError, KeyError, TypeError) as error:
            raise OcciError(503, f"the file {address} cannot be downloaded now, try again: {error}") from None
