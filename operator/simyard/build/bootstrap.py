"""The bootstrap document of a worker's machine."""

from __future__ import annotations

from simyard.api.simulation_service import Connector
from simyard.api.worker import Worker
from simyard_adapter.bootstrap import Bootstrap, BrokerAddress
from simyard_adapter.declarations import Interface


def bootstrap_document(
    worker: Worker, pool: str, interface: Interface, connector: Connector, broker: BrokerAddress
) -> bytes:
    """The document that makes a machine this worker; it holds the password in ``broker``.

    ``pool`` is the name of the worker's pool, empty when it stands alone. The worker's initial values of attributes
    are its own: those of its pool were copied when it was made.
    """
    return Bootstrap(
        namespace=worker.metadata.namespace,
        worker=worker.metadata.name,
        worker_uid=worker.metadata.uid,
        service=worker.spec.service_ref.name,
        pool=pool,
        broker=broker,
        interface=interface,
        connector={name: value for name, value in connector.to_json().items() if name != "files"},
        files={file.path: file.content for file in connector.files},
        attributes=worker.spec.attributes,
    ).to_bytes()
