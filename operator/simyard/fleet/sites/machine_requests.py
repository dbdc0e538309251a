# SPDX-License-Identifier: Apache-2.0
"""Builds the requests for the machines of Workers, after it has created their queues and users at the broker."""

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
    """Builder of the requests for machines of one site. It remembers the Workers that may have no machine now.

    A user who may create Workers can write any site into ``spec.site``. So this last step before the call to the site
    checks again whether the present spec of the CloudSite permits the Worker. If not, the condition ``Ready`` of the
    Worker has the reason. The next attempt follows when the CloudSite changes or another Worker of the site is deleted.
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
        """Apply a changed spec; return the uids of the Workers that got no machine under the former spec."""
        self._site = self._site.model_copy(update={"spec": spec})
        return list(self._denied)

    def forget(self, uid: str) -> list[str]:
        """Forget a deleted Worker; return a list with the uid of the Worker that gets its place, or an empty list."""
        self._denied.pop(uid, None)
        return list(islice(self._denied, 1))

    def record_answers(self, uids: Iterable[str]) -> None:
        """Record that the site has answered the requests for these Workers.

        From now on, a Worker occupies a place only if the site has a machine for it.
        """
        self._asked.difference_update(uids)

    async def prepare(self, workers: Sequence[Worker]) -> dict[str, MachineRequest]:
        """Create the queues and users of Workers, and return the requests for their machines, by uid of the Worker.

        The result has no request for a Worker that is deleted, whose service is missing or invalid, or that the
        CloudSite does not permit now.

        Raises:
            MessagingError: the broker did not create all queues and users.
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
        """Return the number of Workers that may get a machine now."""
        name, limit = self._site.metadata.name, self._site.spec.limits.max_workers
        if self._registry.workers.count("site", name) <= limit:
            return limit
        uids = (worker.metadata.uid for worker in self._registry.workers.list_by("site", name))
        return limit - sum(1 for uid in uids if uid in self._asked or self._machines.list_of_worker(uid))

    def _deny(self, worker: Worker, why: str) -> bool:
        """Report ``why`` a Worker may have no machine; return whether there is a reason. Empty: it may have one."""
        uid = worker.metadata.uid
        message = f"CloudSite {worker.spec.site} {why}" if why else ""
        if message != self._denied.get(uid, ""):
            self._statuses.observe(uid, denied=message)
        self._denied.pop(uid, None)
        if message:
            self._denied[uid] = message  # the newest is last, so the Worker that waits longest comes first
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
