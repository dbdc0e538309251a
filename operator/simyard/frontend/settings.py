"""How a frontend is to run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from simyard.api.names import SYSTEM_NAMESPACE
from simyard.messaging.access import BrokerAccess


@dataclass(frozen=True, slots=True)
class FrontendSettings:
    """Attributes:
    certificate: serving certificate (PEM); it and ``key`` are read again when they change.
    key: its private key.
    kubeconfig: for the Kubernetes API; ``$KUBECONFIG`` or the cluster that this process runs in when it is None.
    namespace: whose objects it serves.
    service: the one SimulationService that it serves; all of the namespace when it is "".
    platform_namespace: where the platform lives, and with it the Secret with the broker's credentials.
    endpoint: ``https://host:port`` as clients see it, for absolute URIs; what a request's Host says when it is "".
    amqp_endpoint: the URL after which the queue of AMQP clients is named; the same on all frontends that share it.
        No requests are taken from a queue when it is "".
    other_endpoints: where other frontends of the namespace are, whose URIs are the same entities'.
    cloud4e: whether service adapters of Cloud4E are served, too.
    broker: the broker's credentials; from the Secret when it is None.
    bind: address to listen at.
    port: for clients, TLS.
    cors_origins: web origins that may send credentials of the browser's own; any other may send tokens only.
    max_in_flight: more requests at the same time are answered 503.
    drain_seconds: how long it goes on serving after it was asked to stop, for load balancers to notice.
    """

    certificate: Path
    key: Path
    kubeconfig: Path | None = None
    namespace: str = "default"
    service: str = ""
    platform_namespace: str = SYSTEM_NAMESPACE
    endpoint: str = ""
    amqp_endpoint: str = ""
    other_endpoints: tuple[str, ...] = ()
    cloud4e: bool = False
    broker: BrokerAccess | None = None
    bind: str = "0.0.0.0"  # noqa: S104 - clients come from outside of the pod
    port: int = 8443
    cors_origins: frozenset[str] = frozenset()
    max_in_flight: int = 1000
    drain_seconds: float = 3.0
