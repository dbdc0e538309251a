# SPDX-License-Identifier: Apache-2.0
"""Creates the root disks of machines with separate disks: DataVolumes, which CDI fills."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from simyard_sites.base import InvalidSpecError, Machine, MachineState
from simyard_sites.kubernetes.client import Json, KubeClient
from simyard_sites.kubernetes.errors import AlreadyExistsError, ApiError, NotFoundError
from simyard_sites.kubernetes.ownership import LABEL_WORKER_UID
from simyard_sites.kubevirt.probing import NO_CDI, lacks_api
from simyard_sites.kubevirt.settings import DataVolume
from simyard_sites.kubevirt.vmi import ANNOTATION_DISK, DATA_VOLUMES, VMIS, build_data_volume

_REFUSED = (400, 403, 404, 422)
"""The HTTP statuses of a permanent refusal: a quota, a missing right, or a missing definition."""


class Disks:
    """The root disks of a site's machines. The site creates each disk after its machine; both are deleted together.

    If the API server refuses a disk, the site deletes the machine, which would wait for ever. If the creation fails for
    another reason (a lost answer, a busy server, a cancelled call), :meth:`make_missing` creates the disk later.
    """

    def __init__(self, disk: DataVolume, namespace: str, selector: str) -> None:
        self._disk = disk
        self._namespace = namespace
        self._selector = selector
        self._missing: set[str] = set()

    async def make(self, client: KubeClient, stored: Json) -> None:
        """Create the disk of a machine that exists (``stored``), unless it has one.

        Raises:
            InvalidSpecError: CDI is not installed.
            ApiError: The API server refuses the request or does not answer.
        """
        metadata = stored["metadata"]
        machine_id = f"{metadata['namespace']}/{metadata['name']}"
        self._missing.add(machine_id)
        try:
            await client.create(DATA_VOLUMES, build_data_volume(stored, self._disk), metadata["namespace"])
        except AlreadyExistsError:
            pass
        except ApiError as error:
            if error.status in _REFUSED:
                with contextlib.suppress(ApiError):
                    await client.delete(VMIS, metadata["name"], metadata["namespace"], uid=metadata["uid"])
                    self._missing.discard(machine_id)
            if lacks_api(error):
                raise InvalidSpecError(NO_CDI) from error
            raise
        self._missing.discard(machine_id)

    async def find_missing(self, client: KubeClient, machines: Sequence[Machine]) -> None:
        """Find the machines without a disk, which an earlier process left behind.

        Raises:
            ApiError: The API server refuses the request or does not answer.
        """
        waiting = [machine for machine in machines if machine.state is MachineState.PENDING]
        if not waiting:
            return
        there: set[str] = set()

        def read_page(page: list[Json]) -> None:
            there.update((item["metadata"].get("labels") or {}).get(LABEL_WORKER_UID, "") for item in page)

        await client.list_all(DATA_VOLUMES, self._namespace, labels=self._selector, on_page=read_page)
        self._missing.update(machine.id for machine in waiting if machine.owner.worker_uid not in there)

    async def make_missing(self, client: KubeClient) -> None:
        """Try to create each known missing disk.

        Raises:
            InvalidSpecError: CDI is not installed.
            ApiError: The API server refuses the request or does not answer.
        """
        failure: ApiError | InvalidSpecError | None = None
        for machine_id in sorted(self._missing):
            namespace, _, name = machine_id.partition("/")
            try:
                stored = await client.get(VMIS, name, namespace)
                if ANNOTATION_DISK in (stored["metadata"].get("annotations") or {}):
                    await self.make(client, stored)
            except NotFoundError:
                pass
            except (ApiError, InvalidSpecError) as error:
                failure = error
                continue
            self._missing.discard(machine_id)
        if failure is not None:
            raise failure
