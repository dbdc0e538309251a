# SPDX-License-Identifier: Apache-2.0
"""Bootstrap document of a worker's machine."""

from __future__ import annotations

from simyard.api.connector import Connector
from simyard.api.worker import Worker
from simyard_adapter.bootstrap import Bootstrap, BrokerAddress
from simyard_adapter.declarations import Interface


def build_bootstrap(
    worker: Worker, pool: str, interface: Interface, connector: Connector, broker: BrokerAddress
) -> bytes:
    """Return the bootstrap document of a worker's machine. It contains the password in ``broker``.

    ``pool`` is the name of the worker's pool, or empty. The initial values of attributes come from the Worker; the
    operator copied the pool's values into the Worker when it created it.
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
