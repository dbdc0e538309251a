# SPDX-License-Identifier: Apache-2.0
"""Builds the requests for Workers' machines, after the objects that a machine needs were created."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from simyard.api.cloud_site import CloudSite, CloudSiteSpec
from simyard.api.quantities import parse_cores, parse_mebibytes, parse_millis
from simyard.api.site_permission import find_refusal
from simyard.api.worker import Worker
from simyard.fleet.registry import get_pool_uid
from simyard.fleet.sites.context import SiteContext
from simyard.fleet.sites.machines import MachineTable
from simyard.manifests.bootstrap import build_bootstrap
from simyard.plan.machine import make_machine_name
from simyard.plan.texts import format_count
from simyard_sites.base import MachineRequest, Owner


class MachineRequests:
    """Requests for machines of one site, and the Workers that must not have a machine there now.

    A user who may create Workers can write any site into ``spec.site``. So this last step before the call to the site
    checks again whether the present spec of the CloudSite permits the Worker. If not, the condition ``Ready`` of the
    Worker gives the reason. The Worker is tried again when the CloudSite changes or another Worker of the site was
    deleted.
    """

    def __init__(self, site: CloudSite, context: SiteContext, machines: MachineTable) -> None:
        self._site = site
        self._provider_kind = site.spec.provider.get_member()[0]
        self._registry = context.registry
        self._broker = context.broker
        self._statuses = context.statuses
        self._machines = machines
        self._asked: set[str] = set()
        self._denied: dict[str, str] = {}

    def adjust(self, spec: CloudSiteSpec) -> list[str]:
        """Use a changed spec from now on; return the uids of the Workers that were denied a machine."""
        self._site = self._site.model_copy(update={"spec": spec})
        return list(self._denied)

    def forget(self, uid: str) -> list[str]:
        """Forget a deleted Worker; return the uid of a Worker that waits for its place, if there is one."""
        self._denied.pop(uid, None)
        return list(islice(self._denied, 1))

    def record_answers(self, uids: Iterable[str]) -> None:
        """Note that the site has answered these requests: from now on, its machines show which Workers have places."""
        self._asked.difference_update(uids)

    async def prepare(self, workers: Sequence[Worker]) -> dict[str, MachineRequest]:
        """Create the queues of Workers, and return the requests for their machines, by the uid of the Worker.

        The result leaves out deleted Workers, Workers whose service is missing or invalid, and Workers that the
        CloudSite does not permit now.

        Raises:
            MessagingError: the broker did not create the queues.
        """
        permitted = [worker for worker in workers if not self._deny(worker, self._refusal(worker))]
        await self._broker.ensure_workers(permitted)
        requests: dict[str, MachineRequest] = {}
        places = self._places()
        for worker in permitted:
            uid = worker.metadata.uid
            if self._registry.find_worker(uid) is None or (request := self._request(worker)) is None:
                continue
            full = f"has its maximum of {format_count(self._site.spec.limits.max_workers, 'worker')}"
            if not self._deny(worker, full if len(requests) >= places else ""):
                requests[uid] = request
        self._asked.update(requests)
        return requests

    def _refusal(self, worker: Worker) -> str:
        if self._site.spec.cordoned and worker.status.machine_id:
            return ""  # the Worker is at the site already: its machine is created again after a stop
        pools = self._registry.pools.list_by("uid", get_pool_uid(worker)) if get_pool_uid(worker) else []
        consent = pools[0].spec.placement.consent if pools else None
        return find_refusal(self._site, worker.metadata.namespace, consent)

    def _places(self) -> int:
        """Return the number of Workers that may still get a machine."""
        name, limit = self._site.metadata.name, self._site.spec.limits.max_workers
        if self._registry.workers.count("site", name) <= limit:
            return limit
        uids = (worker.metadata.uid for worker in self._registry.workers.list_by("site", name))
        return limit - sum(1 for uid in uids if uid in self._asked or self._machines.list_of_worker(uid))

    def _deny(self, worker: Worker, why: str) -> bool:
        """Report the reason ``why`` a Worker may have no machine (empty: none); return whether there is one."""
        uid = worker.metadata.uid
        message = f"CloudSite {worker.spec.site} {why}" if why else ""
        if message != self._denied.get(uid, ""):
            self._statuses.observe(uid, denied=message)
        self._denied.pop(uid, None)
        if message:
            self._denied[uid] = message  # added at the end, so that Workers that wait longer come first
        return bool(message)

    def _request(self, worker: Worker) -> MachineRequest | None:
        service = self._registry.find_service(worker)
        if service is None or service.problem:
            return None
        metadata, spec = worker.metadata, service.service.spec
        resources = worker.spec.resources or spec.resources
        owner = metadata.controller
        pool = owner.name if owner is not None else ""
        address = self._broker.build_worker_address(worker)
        return MachineRequest(
            name=make_machine_name(metadata.name, metadata.uid),
            owner=Owner(metadata.namespace, metadata.name, metadata.uid, pool),
            bootstrap=build_bootstrap(worker, pool, service.interface, spec.connector, address),
            cores=parse_cores(resources.cpu),
            memory_mib=parse_mebibytes(resources.memory),
            image=spec.images.to_json().get(self._provider_kind, ""),
            hostname=worker.spec.hostname or "",
            user_data=worker.spec.user_data or "",
            ssh_public_keys=tuple(worker.spec.ssh_public_keys or ()),
            cpu_millis=parse_millis(resources.cpu),
        )
