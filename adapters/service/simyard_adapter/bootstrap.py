# SPDX-License-Identifier: Apache-2.0
"""The bootstrap document: the one document that makes a machine a worker.

It holds the worker's identity, the address of the broker, the interface and the connector. The control plane writes it,
the site carries it into the machine (as a file, a Secret volume or cloud-init data), and ``simyard-adapter run
--bootstrap FILE`` reads it. It contains a password: its file has mode 0600, and it is never an argument and never
logged.

The documents of a pool's workers differ only in ``worker`` and ``workerUid``. A site may therefore store one document
for all of them (:func:`remove_worker`) and give each machine its identity in another way
(:meth:`Bootstrap.name_worker`).
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass, field, replace
from typing import Any, Mapping, Optional

from simyard_adapter.declarations import Interface, Json
from simyard_adapter.wire import parse_identity

WORKER_VARIABLE = "SIMYARD_WORKER"
WORKER_UID_VARIABLE = "SIMYARD_WORKER_UID"
"""The environment variables with a worker's name and uid, for machines that share a bootstrap document."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def remove_worker(document: bytes) -> bytes:
    """Return the part of a bootstrap document that all workers of a pool share.

    Raises:
        ValueError: The document is not a JSON object.
    """
    data = json.loads(document)
    if not isinstance(data, dict):
        raise ValueError("the bootstrap document is not a JSON object")
    return json.dumps({**data, "worker": "", "workerUid": ""}, separators=(",", ":")).encode()


@dataclass(frozen=True)
class BrokerAddress:
    """The address of the broker and the login of a worker.

    ``ca_certificate`` (PEM) turns TLS on; without it, the connection is not encrypted.
    """

    host: str
    port: int
    vhost: str
    username: str
    password: str = field(repr=False)
    ca_certificate: Optional[str] = field(default=None, repr=False)

    @property
    def identity(self) -> str:
        """The part of the user name that stays when the password is rotated (see :mod:`simyard_adapter.wire`)."""
        return parse_identity(self.username)

    def to_json(self) -> dict[str, Any]:
        """Return the value of ``broker`` in the document."""
        return {
            "host": self.host,
            "port": self.port,
            "vhost": self.vhost,
            "username": self.username,
            "password": self.password,
            "caCertificate": self.ca_certificate,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "BrokerAddress":
        """Read the value of ``broker`` in the document."""
        return cls(
            host=str(data["host"]),
            port=int(data["port"]),
            vhost=str(data["vhost"]),
            username=str(data["username"]),
            password=str(data["password"]),
            ca_certificate=data.get("caCertificate"),
        )


@dataclass(frozen=True)
class Bootstrap:
    """The contents of a bootstrap document.

    Attributes:
        namespace: The namespace of the Worker.
        worker: The name of the Worker; empty in a shared document.
        worker_uid: The uid of the Worker; empty in a shared document.
        service: The name of the SimulationService.
        pool: The name of the WorkerPool; empty for a worker without a pool.
        broker: The address of the broker and the login.
        interface: The interface that the service declares.
        connector: ``spec.connector`` of the SimulationService: ``{"python": {"class": "module:Class"}}`` or
            ``{"commands": {..}}``.
        files: The texts of the files that are written beside the connector, by relative path.
        attributes: The values that the user gave for the service's attributes.
    """

    namespace: str
    worker: str
    worker_uid: str
    service: str
    pool: str
    broker: BrokerAddress
    interface: Interface
    connector: Mapping[str, Any]
    files: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Json] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the document as UTF-8 JSON."""
        return json.dumps(
            {
                "namespace": self.namespace,
                "worker": self.worker,
                "workerUid": self.worker_uid,
                "service": self.service,
                "pool": self.pool,
                "broker": self.broker.to_json(),
                "interface": self.interface.to_json(),
                "connector": dict(self.connector),
                "files": dict(self.files),
                "attributes": dict(self.attributes),
            },
            separators=(",", ":"),
        ).encode()

    def name_worker(self, worker: str, worker_uid: str) -> "Bootstrap":
        """Return the same document for this worker; it replaces any identity in the document.

        Raises:
            ValueError: ``worker`` is not the name of a Kubernetes object, or ``worker_uid`` is not a UUID.
        """
        if not _NAME.fullmatch(worker):
            raise ValueError(f"{worker!r} is not the name of a worker: set --worker or {WORKER_VARIABLE}")
        try:
            uid = uuid.UUID(worker_uid)
        except ValueError:
            raise ValueError(f"{worker_uid!r} is not a UUID: set --worker-uid or {WORKER_UID_VARIABLE}") from None
        return replace(self, worker=worker, worker_uid=str(uid))

    @classmethod
    def from_bytes(cls, document: bytes) -> "Bootstrap":
        """Read the document.

        Raises:
            ValueError: The bytes are not a bootstrap document; the message names the missing field, and no secret.
        """
        try:
            data = json.loads(document)
            return cls(
                namespace=str(data["namespace"]),
                worker=str(data["worker"]),
                worker_uid=str(data["workerUid"]),
                service=str(data["service"]),
                pool=str(data.get("pool") or ""),
                broker=BrokerAddress.from_json(data["broker"]),
                interface=Interface.from_json(data["interface"]),
                connector=dict(data["connector"]),
                files=dict(data.get("files") or {}),
                attributes=dict(data.get("attributes") or {}),
            )
        except KeyError as error:
            raise ValueError(f"the bootstrap document has no field {error}") from None
        except (AttributeError, TypeError, json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"the bootstrap document is not valid: {type(error).__name__}") from None
