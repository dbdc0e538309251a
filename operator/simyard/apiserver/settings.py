# SPDX-License-Identifier: Apache-2.0
"""Settings of the aggregated apiserver."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from simyard.api.names import SYSTEM_NAMESPACE
from simyard.files.access import StoreAccess
from simyard.kube.cache import ALL_NAMESPACES
from simyard.messaging.access import BrokerAccess
from simyard.serving.actions import SYNC_SECONDS
from simyard_adapter.file_urls import NO_URLS, AllowedUrls


@dataclass(frozen=True, slots=True)
class ApiServerSettings:
    """The settings of one apiserver process.

    Attributes:
        certificate: file of the serving certificate (PEM). The server reads the files of certificate and key again
            when they change.
        key: file of the private key.
        kubeconfig: kubeconfig file; None: ``$KUBECONFIG`` or, without it, the cluster of this process.
        namespace: the platform's namespace, which has the Secret with the broker's credentials.
        watch_namespaces: the namespaces whose objects the server serves.
        broker: the access to the broker; None: the access in the Secret.
        files: the access to the file store; None if the platform has none.
        files_quota: the maximum bytes of files of a namespace; None: no limit.
        file_urls: the URLs that file parameters of actions may have.
        bind: the address on which the server listens.
        port: the TLS port for kube-apiserver.
        max_in_flight: maximum number of parallel requests; further requests get status 429.
        drain_seconds: time for which the process still serves requests after SIGTERM, until load balancers send no
            further ones.
        sync_seconds: time limit for the result of a Sync action.
    """

    certificate: Path
    key: Path
    kubeconfig: Path | None = None
    namespace: str = SYSTEM_NAMESPACE
    watch_namespaces: tuple[str, ...] = ALL_NAMESPACES
    broker: BrokerAccess | None = None
    files: StoreAccess | None = None
    files_quota: int | None = None
    file_urls: AllowedUrls = NO_URLS
    bind: str = "0.0.0.0"  # noqa: S104 - kube-apiserver connects from outside of the pod
    port: int = 8443
    max_in_flight: int = 1000
    drain_seconds: float = 3.0
    sync_seconds: int = SYNC_SECONDS
