"""How the aggregated apiserver is to run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from simyard.api.names import SYSTEM_NAMESPACE
from simyard.kube.cache import ALL_NAMESPACES
from simyard.messaging.access import BrokerAccess


@dataclass(frozen=True, slots=True)
class ApiServerSettings:
    """Attributes:
    certificate: serving certificate (PEM); it and ``key`` are read again when they change.
    key: its private key.
    kubeconfig: for the Kubernetes API; ``$KUBECONFIG`` or the cluster that this process runs in when it is None.
    namespace: where the platform lives, and with it the Secret with the broker's credentials.
    watch_namespaces: whose objects are served.
    broker: the broker's credentials; from the Secret when it is None.
    bind: address to listen at.
    port: for kube-apiserver, TLS.
    max_in_flight: more requests at the same time are answered 429.
    drain_seconds: how long it goes on serving after it was asked to stop, for load balancers to notice.
    """

    certificate: Path
    key: Path
    kubeconfig: Path | None = None
    namespace: str = SYSTEM_NAMESPACE
    watch_namespaces: tuple[str, ...] = ALL_NAMESPACES
    broker: BrokerAccess | None = None
    bind: str = "0.0.0.0"  # noqa: S104 - kube-apiserver comes from outside of the pod
    port: int = 8443
    max_in_flight: int = 1000
    drain_seconds: float = 3.0
