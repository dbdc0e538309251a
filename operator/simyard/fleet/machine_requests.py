"""What a site is asked for: the requests for Workers' machines, when all that they need is there."""

from __future__ import annotations

from collections.abc import Sequence

from simyard.api.cloud_site import CloudSite
from simyard.api.quantities import cores_of, mebibytes_of, millis_of
from simyard.api.worker import Worker
from simyard.build.bootstrap import bootstrap_document
from simyard.fleet.broker import Broker
from simyard.fleet.registry import Registry
from simyard.plan.machine import machine_name
from simyard_sites.base import MachineRequest, Owner


class MachineRequests:
    """Of one site."""

    def __init__(self, site: CloudSite, registry: Registry, broker: Broker) -> None:
        self._provider_kind = site.spec.provider.member()[0]
        self._registry = registry
        self._broker = broker

    async def prepare(self, workers: Sequence[Worker]) -> dict[str, MachineRequest]:
        """The requests by uid of the Worker, once their queues are there; Workers that went meanwhile are left out,
        and those whose service is not there or makes no sense.

        Raises:
            MessagingError: the broker did not make the queues.
        """
        await self._broker.ensure_workers(workers)
        requests = {}
        for worker in workers:
            uid = worker.metadata.uid
            if self._registry.worker(uid) is not None and (request := self._request(worker)) is not None:
                requests[uid] = request
        return requests

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
