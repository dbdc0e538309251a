# SPDX-License-Identifier: Apache-2.0
"""Connects to the cluster of a site: the control plane's own cluster, or the cluster of a kubeconfig in a Secret."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp
import yaml
from kubernetes_asyncio import client as kubernetes
from kubernetes_asyncio import config as kubernetes_config

from simyard_sites.base import InvalidSpecError, SiteConfig, UnavailableError
from simyard_sites.kubernetes.client import KubeClient

REQUESTS = 64
"""Maximum number of parallel requests of bulk calls. More requests would wait for a connection and reach deadlines."""
_CONNECTIONS = REQUESTS + 8
KUBECONFIG_KEY = "kubeconfig"
_RUNS_PROGRAMS = ("exec", "auth-provider")
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


class Cluster:
    """The cluster of a site, with one client that connects at its first use.

    The cluster is the one in the kubeconfig of ``spec.provider.<kind>.kubeconfigSecretRef``, or else the cluster of the
    control plane.

    Attributes:
        slots: The limit of parallel requests of bulk calls.

    Raises:
        InvalidSpecError: The kubeconfig cannot be used.
    """

    def __init__(self, config: SiteConfig, kind: str) -> None:
        self._field = f"spec.provider.{kind}.kubeconfigSecretRef"
        self._own = config.kubeconfig
        self._document: dict[str, object] | None = None
        if "kubeconfigSecretRef" in config.provider:
            self._document = self._read(config.credentials.get(KUBECONFIG_KEY, ""))
        self.slots = asyncio.Semaphore(REQUESTS)
        self._client: KubeClient | None = None
        self._connecting = asyncio.Lock()

    @property
    def is_remote(self) -> bool:
        """True if the cluster is not the control plane's own."""
        return self._document is not None

    async def get_client(self) -> KubeClient:
        """Return the client. It does not retry after a 429, so that the platform sees the refusal.

        Raises:
            UnavailableError: No configuration for a connection was found.
        """
        async with self._connecting:
            if self._client is None:
                self._client = await self._connect()
            return self._client

    async def aclose(self) -> None:
        """Close the connections."""
        async with self._connecting:
            if self._client is not None:
                await self._client.aclose()
                self._client = None

    async def _connect(self) -> KubeClient:
        try:
            if self._document is None:
                return await KubeClient.connect(self._own, max_connections=_CONNECTIONS, attempts=1)
            configuration = kubernetes.Configuration()
            await kubernetes_config.load_kube_config_from_dict(self._document, client_configuration=configuration)
            configuration.connection_pool_maxsize = _CONNECTIONS
            return KubeClient(configuration, attempts=1)
        except (kubernetes_config.ConfigException, ValueError, OSError, ssl.SSLError, aiohttp.ClientError) as error:
            where = f"{self._field}: the kubeconfig" if self._document is not None else "the operator's own cluster"
            raise UnavailableError(f"{where} cannot be used: {error}") from error

    def _read(self, text: str) -> dict[str, object]:
        if not text:
            raise InvalidSpecError(
                f"{self._field}: the Secret has no key {KUBECONFIG_KEY}; store the kubeconfig under this key"
            )
        try:
            document = yaml.safe_load(text)
        except yaml.YAMLError:
            raise InvalidSpecError(f"{self._field}: the kubeconfig in the Secret is not valid YAML") from None
        if not isinstance(document, dict):
            raise InvalidSpecError(f"{self._field}: the kubeconfig in the Secret is not a YAML mapping")
        for entry, what in _entries(document):
            if any(name in entry for name in _RUNS_PROGRAMS):
                raise InvalidSpecError(f"{self._field}: a {what} in the kubeconfig runs a program; use a token instead")
            if found := [name for name in _FILES if name in entry]:
                raise InvalidSpecError(
                    f"{self._field}: the kubeconfig refers to a file by {found[0]}; insert the file's data instead"
                )
        return document


def _entries(document: dict[str, object]) -> list[tuple[dict[str, object], str]]:
    """Return the clusters and users of a kubeconfig, each with a name for messages."""
    found = []
    for plural, what in (("clusters", "cluster"), ("users", "user")):
        items = document.get(plural)
        for item in items if isinstance(items, list) else []:
            value = item.get(what) if isinstance(item, dict) else None
            if isinstance(value, dict):
                found.append((value, what))
    return found
