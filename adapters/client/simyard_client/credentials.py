# SPDX-License-Identifier: Apache-2.0
"""Credentials that stay valid: headers and TLS contexts of requests, renewed before and after they expire.

A token file is read again after a minute, as client-go does, because the kubelet replaces the token of a pod. An exec
plugin runs again shortly before the credentials that it printed expire. When the API server answers 401, the caller
asks for other credentials once: they may have been revoked. Callers that ask at the same time share one run of the
plugin.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from simyard_client.errors import ConfigError
from simyard_client.kubeconfig import Access, Cluster, ExecPlugin, User

TOKEN_FILE_SECONDS = 60.0
"""Time after which a token file is read again."""
RENEWAL_SECONDS = 30.0
"""Credentials are renewed so long before they expire."""
PLUGIN_SECONDS = 300.0
"""Time for a plugin, which may wait for a login in a browser."""


@dataclass(frozen=True)
class Credential:
    """Secrets for requests: a token or a certificate with its key (PEM), and the time until which they are valid."""

    token: str = field(default="", repr=False)
    certificate: str = ""
    key: str = field(default="", repr=False)
    expires: float = float("inf")


class Credentials:
    """The credentials of one access, for use in one event loop."""

    def __init__(self, access: Access, *, clock: Callable[[], float] = time.time) -> None:
        """Begin; nothing is read or run before the first request."""
        self._access = access
        self._clock = clock
        self._current: Credential | None = None
        self._context: ssl.SSLContext | None = None
        self._renewal = asyncio.Lock()

    async def get(self, refused: Credential | None = None) -> Credential:
        """Return valid credentials; other ones than ``refused``, which the API server did not accept.

        Raises:
            ConfigError: The token file cannot be read, or the plugin failed.
        """
        async with self._renewal:
            current = self._current
            if current is None or current is refused or current.expires <= self._clock():
                renewed = await self._renew()
                if current is None or (renewed.certificate, renewed.key) != (current.certificate, current.key):
                    self._context = None
                self._current = current = renewed
            return current

    def get_context(self, credential: Credential) -> ssl.SSLContext:
        """Return the TLS context for requests with these credentials.

        Raises:
            ConfigError: A certificate cannot be used.
        """
        if self._context is None:
            self._context = make_context(self._access.cluster, credential)
        return self._context

    def make_headers(self, credential: Credential) -> list[tuple[str, str]]:
        """Return the headers that identify the user."""
        user = self._access.user
        headers = list(user.impersonate)
        if credential.token:
            headers.append(("Authorization", f"Bearer {credential.token}"))
        elif user.username:
            pair = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
            headers.append(("Authorization", f"Basic {pair}"))
        return headers

    async def _renew(self) -> Credential:
        user = self._access.user
        if user.token_file is not None:
            try:
                token = user.token_file.read_text().strip()
            except OSError as error:
                raise ConfigError(f"{user.token_file}: cannot read the token: {error}") from None
            return Credential(token, user.certificate, user.key, self._clock() + TOKEN_FILE_SECONDS)
        if user.plugin is not None and not user.token:
            return await asyncio.to_thread(run_plugin, user.plugin, self._access.cluster, user)
        return Credential(user.token, user.certificate, user.key)


def run_plugin(plugin: ExecPlugin, cluster: Cluster, user: User) -> Credential:
    """Return the credentials that an exec plugin prints.

    Raises:
        ConfigError: The plugin does not exist, failed, or printed no credentials.
    """
    interactive = plugin.interactive != "Never" and sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive == "Always" and not interactive:
        raise ConfigError(f"{plugin.command}: asks for input, and there is no terminal: log in with kubectl first")
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.give_cluster:
        spec["cluster"] = _describe(cluster)
    asked = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    try:
        done = subprocess.run(
            [plugin.command, *plugin.arguments],
            env={**os.environ, **plugin.variables, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if interactive else subprocess.PIPE,
            timeout=PLUGIN_SECONDS,
            check=False,
        )
    except OSError as error:
        hint = f". {plugin.hint}" if plugin.hint else ""
        raise ConfigError(f"{plugin.command}: cannot run the plugin for credentials: {error.strerror}{hint}") from None
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{plugin.command}: printed no credentials within {PLUGIN_SECONDS:.0f} s") from None
    if done.returncode:
        said = (done.stderr or b"").decode(errors="replace").strip()[-1000:]
        raise ConfigError(f"{plugin.command}: the plugin for credentials failed with status {done.returncode}: {said}")
    return read_exec_credential(done.stdout, plugin, user)


def read_exec_credential(text: bytes, plugin: ExecPlugin, user: User) -> Credential:
    """Return the credentials in an ExecCredential.

    Raises:
        ConfigError: The text is not an ExecCredential with a status.
    """
    try:
        answer = json.loads(text)
        status = answer["status"]
        expires = status.get("expirationTimestamp")
        until = _read_time(expires) - RENEWAL_SECONDS if expires else float("inf")
        credential = Credential(
            str(status.get("token") or ""),
            str(status.get("clientCertificateData") or user.certificate),
            str(status.get("clientKeyData") or user.key),
            until,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{plugin.command}: printed no ExecCredential with a status: {error!r}") from None
    if answer.get("apiVersion") != plugin.api_version:
        raise ConfigError(
            f"{plugin.command}: printed {answer.get('apiVersion')!r}, and the kubeconfig says {plugin.api_version!r}"
        )
    if not credential.token and not credential.certificate:
        raise ConfigError(f"{plugin.command}: printed neither a token nor a certificate")
    return credential


def make_context(cluster: Cluster, credential: Credential) -> ssl.SSLContext:
    """Return a TLS context that trusts a cluster and shows the certificate of the user.

    Raises:
        ConfigError: A certificate or a key cannot be used.
    """
    try:
        context = ssl.create_default_context(cadata=cluster.authority or None)
        if cluster.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if credential.certificate:
            _load_certificate(context, credential)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"a certificate or a key of the kubeconfig cannot be used: {error}") from None
    return context


def _load_certificate(context: ssl.SSLContext, credential: Credential) -> None:
    """Load a certificate and its key. Python reads them from files only, so the files exist for this moment."""
    with tempfile.TemporaryDirectory(prefix="simyard-") as folder:  # mode 0700
        certificate, key = Path(folder) / "certificate", Path(folder) / "key"
        certificate.write_text(credential.certificate)
        key.write_text(credential.key)
        context.load_cert_chain(certificate, key)


def _describe(cluster: Cluster) -> dict[str, Any]:
    """Return the cluster as KUBERNETES_EXEC_INFO has it."""
    known = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure,
        "certificate-authority-data": base64.b64encode(cluster.authority.encode()).decode(),
        "proxy-url": cluster.proxy_url,
        "config": cluster.extension,
    }
    return {name: value for name, value in known.items() if value}


def _read_time(text: str) -> float:
    whole = re.sub(r"\.\d+", "", text.replace("Z", "+00:00"))  # Python 3.10 does not read all fractions of seconds
    return datetime.fromisoformat(whole).timestamp()
