# SPDX-License-Identifier: Apache-2.0
"""Settings of a frontend."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from simyard.api.names import SYSTEM_NAMESPACE
from simyard.messaging.access import BrokerAccess


@dataclass(frozen=True, slots=True)
class FrontendSettings:
    """Settings of one frontend process.

    Attributes:
        certificate: the serving certificate (PEM); the files of certificate and key are read again when they change.
        key: the private key of the certificate.
        kubeconfig: the credentials for the Kubernetes API; None for ``$KUBECONFIG`` or the cluster of this process.
        namespace: the namespace whose objects the frontend serves.
        service: the SimulationService that it serves; "" for all services of the namespace.
        platform_namespace: the namespace of the platform, which has the Secret with the broker's credentials.
        endpoint: the ``https://host:port`` that clients use, for absolute URIs; if "", the Host header of a request is
            used.
        amqp_endpoint: the URL that gives the queue of AMQP clients its name, equal on all frontends that share the
            queue; "" without AMQP.
        other_endpoints: the URLs of other frontends of the namespace; their URIs name the same entities.
        cloud4e: true if service adapters of Cloud4E are served as well.
        broker: the credentials for the broker; None if the Secret has them.
        bind: the address to listen at.
        port: the port for clients, with TLS.
        cors_origins: the web origins that may send the browser's own credentials; all other origins may send tokens
            only.
        max_in_flight: the maximum number of simultaneous requests; a further request gets 503.
        drain_seconds: the time for which the process still accepts requests after it was asked to stop, so that load
            balancers notice.
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
