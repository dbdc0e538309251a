"""What a site is asked for: the requests for Workers' machines, when all that they need is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from simyard.api.cloud_site import CloudSite, CloudSiteSpec
from simyard.api.quantities import cores_of, mebibytes_of, millis_of
from simyard.api.worker import Worker
from simyard.build.bootstrap import bootstrap_document
from simyard.fleet.broker import Broker
from simyard.fleet.registry import Registry, pool_uid_of
from simyard.fleet.workers import WorkerStatuses
from simyard.plan.machine import machine_name
from simyard.plan.placement import refusal
from simyard.plan.texts import count_of
from simyard_sites.base import MachineRequest, Owner


class MachineRequests:
    """The requests of one site, and the Workers that the CloudSite does not permit a machine now.

    Whoever may create Workers names any site in ``spec.site``, so this last step decides again, by the CloudSite as it
    is now. A Worker that is denied says so in its condition ``Ready``, and is looked at again from time to time.
    """

    def __init__(
        self,
        site: CloudSite,
        registry: Registry,
        broker: Broker,
        statuses: WorkerStatuses,
        has_machine: Callable[[str], bool],
    ) -> None:
        """``has_machine`` says whether the Worker of a uid has a machine at the site."""
        self._site = site
        self._provider_kind = site.spec.provider.member()[0]
        self._registry = registry
        self._broker = broker
        self._statuses = statuses
        self._has_machine = has_machine
        self._asked: set[str] = set()
        self._denied: dict[str, str] = {}

    def adjust(self, spec: CloudSiteSpec) -> list[str]:
        """Take over a changed spec, and return the uids of the Workers that were denied a machine."""
        self._site = self._site.model_copy(update={"spec": spec})
        return list(self._denied)

    def forget(self, uid: str) -> list[str]:
        """Forget a Worker that is gone, and return the uid of one that waits for its place, if there is one."""
        self._denied.pop(uid, None)
        return list(islice(self._denied, 1))

    def answered(self, uids: Iterable[str]) -> None:
        """Take over that the site has answered these requests: from now on its machines tell who has one."""
        self._asked.difference_update(uids)

    async def prepare(self, workers: Sequence[Worker]) -> dict[str, MachineRequest]:
        """Return the requests by uid of the Worker, once their queues are there.

        Left out are Workers that went meanwhile, those whose service is not there or makes no sense, and those that
        the CloudSite does not permit now.

        Raises:
            MessagingError: the broker did not make the queues.
        """
        permitted = [worker for worker in workers if not self._deny(worker, self._refusal(worker))]
        await self._broker.ensure_workers(permitted)
        requests: dict[str, MachineRequest] = {}
        places = self._places()
        for worker in permitted:
            uid = worker.metadata.uid
            if self._registry.worker(uid) is None or (request := self._request(worker)) is None:
                continue
            full = f"has its maximum of {count_of(self._site.spec.limits.max_workers, 'worker')}"
            if not self._deny(worker, full if len(requests) >= places else ""):
                requests[uid] = request
        self._asked.update(requests)
        return requests

    def _refusal(self, worker: Worker) -> str:
        if self._site.spec.cordoned and worker.status.machine_id:
            return ""  # its machine is made anew: it does not start there
        pools = self._registry.pools.by("uid", pool_uid_of(worker)) if pool_uid_of(worker) else []
        consent = pools[0].spec.placement.consent if pools else None
        return refusal(self._site, worker.metadata.namespace, consent)

    def _places(self) -> int:
        """Return how many more Workers may get a machine."""
        name, limit = self._site.metadata.name, self._site.spec.limits.max_workers
        if self._registry.workers.count("site", name) <= limit:
            return limit
        uids = (worker.metadata.uid for worker in self._registry.workers.by("site", name))
        return limit - sum(1 for uid in uids if uid in self._asked or self._has_machine(uid))

    def _deny(self, worker: Worker, why: str) -> bool:
        """Have the Worker tell why it is denied a machine, or that it is not any more; return whether it is."""
        uid = worker.metadata.uid
        message = f"CloudSite {worker.spec.site} {why}" if why else ""
        if message != self._denied.get(uid, ""):
            self._statuses.observe(uid, denied=message)
        self._denied.pop(uid, None)
        if message:
            self._denied[uid] = message  # at the end: others that wait are looked at first
        return bool(message)

    def _request(self, worker: Worker) -> MachineRequest | None:
        service = self._registry.service_of(worker)
        if service is None or service.problem:
            return None
        metadata, spec = worker.metadata, service.service.spec
        resources = worker.spec.resources or spec.resources
        owner = metadata.controller
        pool = owner.name if owner is not None else ""
        address = self._broker.address_for(worker)
        return MachineRequest(
            name=machine_name(metadata.name, metadata.uid),
            owner=Owner(metadata.namespace, metadata.name, metadata.uid, pool),
            bootstrap=bootstrap_document(worker, pool, service.interface, spec.connector, address),
            cores=cores_of(resources.cpu),
            memory_mib=mebibytes_of(resources.memory),
            image=spec.images.to_json().get(self._provider_kind, ""),
            hostname=worker.spec.hostname or "",
            user_data=worker.spec.user_data or "",
            ssh_public_keys=tuple(worker.spec.ssh_public_keys or ()),
            cpu_millis=millis_of(resources.cpu),
        )
