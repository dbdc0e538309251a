# SPDX-License-Identifier: Apache-2.0
"""Defines the settings of a frontend."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from simyard.api.names import SYSTEM_NAMESPACE
from simyard.messaging.access import BrokerAccess
from simyard_adapter.file_urls import NO_URLS, AllowedUrls


@dataclass(frozen=True, slots=True)
class FrontendSettings:
    """The settings of one frontend process.

    Attributes:
        certificate: the serving certificate (PEM); the files of certificate and key are read again when they change.
        key: the private key of the certificate.
        kubeconfig: the kubeconfig file; None for ``$KUBECONFIG`` or the cluster in which the process runs.
        namespace: the namespace whose objects the frontend serves.
        service: the SimulationService that it serves; "" for all services of the namespace.
        platform_namespace: the namespace of the platform, which has the Secret with the broker's credentials.
        endpoint: the ``https://host:port`` that clients use, for absolute URIs; if "", the Host header of a request is
            used.
        amqp_endpoint: the URL that gives the queue of AMQP clients its name, equal on all frontends that share the
            queue; "" without AMQP.
        other_endpoints: the URLs of other frontends of the namespace; their URIs name the same entities.
        cloud4e: true if the frontend also serves foreign service adapters.
        file_urls: the URLs that file parameters of actions may have.
        broker: the credentials for the broker; None if the Secret has them.
        bind: the address to listen at.
        port: the port for clients, with TLS.
        cors_origins: the web origins whose scripts may use credentials that the browser keeps; scripts of all other
            origins may only send tokens.
        max_in_flight: the maximum number of simultaneous requests; a further request gets 503.
        drain_seconds: the time for which the process still accepts requests after it was asked to stop. In this time,
            load balancers notice that it is not ready.
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
    file_urls: AllowedUrls = NO_URLS
    broker: BrokerAccess | None = None
    bind: str = "0.0.0.0"  # noqa: S104 - clients come from outside of the pod
    port: int = 8443
    cors_origins: frozenset[str] = frozenset()
    max_in_flight: int = 1000
    drain_seconds: float = 3.0
