"""The one document that makes a machine a worker: who it is, where the broker is, what it runs.

The control plane writes it, the site carries it into the machine (a file, a Secret volume, cloud-init), and
``simyard-adapter run --bootstrap FILE`` reads it. It holds a password: mode 0600, never an argument, never logged.

The documents of a pool's workers differ in ``worker`` and ``workerUid`` alone. A site may so keep one document for all
of them (:func:`shared`) and tell each machine who it is in another way; see :meth:`Bootstrap.identified`.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass, field, replace
from typing import Any, Mapping, Optional

from simyard_adapter.declarations import Interface, Json
from simyard_adapter.wire import identity_of

WORKER_VARIABLE = "SIMYARD_WORKER"
WORKER_UID_VARIABLE = "SIMYARD_WORKER_UID"
"""The environment variables that say which worker a machine is, beside a shared document."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def shared(document: bytes) -> bytes:
    """What the documents of a pool's workers have in common: a document that says of no worker who it is.

    Raises:
        ValueError: it is not a JSON object.
    """
    data = json.loads(document)
    if not isinstance(data, dict):
        raise ValueError("the bootstrap document is not a JSON object")
    return json.dumps({**data, "worker": "", "workerUid": ""}, separators=(",", ":")).encode()


@dataclass(frozen=True)
class BrokerAddress:
    """Where and as whom to connect. ``ca_certificate`` (PEM) is set when TLS is; without it, TLS is off."""

    host: str
    port: int
    vhost: str
    username: str
    password: str = field(repr=False)
    ca_certificate: Optional[str] = field(default=None, repr=False)

    @property
    def identity(self) -> str:
        """The part of the user's name that stays when its password is replaced (see :mod:`simyard_adapter.wire`)."""
        return identity_of(self.username)

    def to_json(self) -> dict[str, Any]:
        """The value of ``broker`` in the document."""
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
        """Read the value of ``broker``."""
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
    """See the module. ``pool`` is empty for a worker that stands alone, ``worker`` in a shared document.

    ``connector`` is ``spec.connector`` of the SimulationService: ``{"python": {"class": "module:Class"}}`` or
    ``{"commands": {..}}``, and ``files`` (path to text) that are written beside it.
    ``attributes`` are the values that the user gave for the service's attributes.
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
        """The document as UTF-8 JSON."""
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

    def identified(self, worker: str, worker_uid: str) -> "Bootstrap":
        """The same for this worker, whatever the document says.

        Raises:
            ValueError: ``worker`` is not the name of a Kubernetes object, or ``worker_uid`` is not a UUID.
        """
        if not _NAME.fullmatch(worker):
            raise ValueError(f"{worker!r} is not the name of a worker (--worker or {WORKER_VARIABLE})")
        try:
            uid = uuid.UUID(worker_uid)
        except ValueError:
            raise ValueError(f"{worker_uid!r} is not a UUID (--worker-uid or {WORKER_UID_VARIABLE})") from None
        return replace(self, worker=worker, worker_uid=str(uid))

    @classmethod
    def from_bytes(cls, document: bytes) -> "Bootstrap":
        """Read the document.

        Raises:
            ValueError: it is not such a document; the message names what is missing, and no secret.
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
            raise ValueError(f"the bootstrap document has no {error}") from None
        except (AttributeError, TypeError, json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"the bootstrap document cannot be read: {type(error).__name__}") from None
