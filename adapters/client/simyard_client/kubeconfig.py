# SPDX-License-Identifier: Apache-2.0
"""Reader of kubeconfig files: which cluster a user means, and with which identity.

The rules are those of kubectl (client-go, ``tools/clientcmd``). ``KUBECONFIG`` may name several files: the first file
that sets a value wins, and a missing file counts as empty. Paths in a file are relative to the folder of that file. If
there is no file at all, and the process runs in a pod, the identity is that of the pod.

This module reads files and environment variables, and does no other I/O. :mod:`simyard_client.credentials` renews what
expires.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from simyard_client.errors import ConfigError

DEFAULT_FILE = Path("~/.kube/config")
POD_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_NAMESPACE = "default"
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


@dataclass(frozen=True)
class Cluster:
    """An API server, and how to trust it.

    Attributes:
        server: The URL, without a slash at the end.
        authority: The certificates (PEM) that sign the server's certificate; empty for those of the system.
        insecure: The server's certificate is not checked.
        tls_server_name: The name that the server's certificate must have; empty for the host of the URL.
        proxy_url: The HTTP proxy; empty for the proxy of the environment.
        extension: The settings of this cluster for exec plugins.
    """

    server: str
    authority: str = ""
    insecure: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extension: Any = None


@dataclass(frozen=True)
class ExecPlugin:
    """A program that prints credentials (KEP-541).

    Attributes:
        command: The program: a name in PATH, or an absolute path.
        arguments: The arguments.
        variables: Environment variables in addition to those of this process.
        api_version: The version of the ExecCredential.
        give_cluster: The plugin wants a description of the cluster.
        interactive: ``Never``, ``IfAvailable`` or ``Always``: whether the plugin reads standard input.
        hint: The text that tells how to install the program.
    """

    command: str
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    api_version: str = _EXEC_VERSIONS[0]
    give_cluster: bool = False
    interactive: str = "IfAvailable"
    hint: str = ""


@dataclass(frozen=True)
class User:
    """The identity of a user: at most one of token, token file, password and exec plugin, and perhaps a certificate.

    ``certificate`` and ``key`` are PEM texts. ``impersonate`` has the headers that ask to act as another user.
    """

    token: str = field(default="", repr=False)
    token_file: Path | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    certificate: str = ""
    key: str = field(default="", repr=False)
    plugin: ExecPlugin | None = None
    impersonate: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Access:
    """Everything that a connection needs: a cluster, a user, and the namespace to work in."""

    cluster: Cluster
    user: User
    namespace: str = DEFAULT_NAMESPACE


def load_access(
    path: str | Path | None = None,
    context: str = "",
    namespace: str = "",
    *,
    environment: Mapping[str, str] = os.environ,
    pod_folder: Path = POD_FOLDER,
) -> Access:
    """Return the access that a kubeconfig describes, or that of the pod in which this process runs.

    Args:
        path: The kubeconfig file; by default the files of ``KUBECONFIG``, or ``~/.kube/config``.
        context: The name of the context; by default the current one.
        namespace: The namespace; by default that of the context.
        environment: The environment variables.
        pod_folder: The folder of the pod's identity.

    Raises:
        ConfigError: A file cannot be read, or it does not describe the context.
    """
    files = [Path(path)] if path else _list_files(environment)
    contents = [(file, _read(file)) for file in files if path or file.exists()]
    if not any(content for _, content in contents):
        if not context and (pod := _find_pod(environment, pod_folder)):
            return replace(pod, namespace=namespace or pod.namespace)
        named = ", ".join(map(str, files))
        raise ConfigError(f"there is no kubeconfig: {named} is absent or empty. Set KUBECONFIG, or use connect(url=)")
    config = _Config(contents)
    name = context or config.current
    if not name:
        raise ConfigError(f"{files[0]}: current-context is not set: call connect(context=...)")
    found = config.find("context", name)
    cluster, user = str(found.value.get("cluster") or ""), str(found.value.get("user") or "")
    return Access(
        _make_cluster(config.find("cluster", cluster)),
        _make_user(config.find("user", user)) if user else User(),
        namespace or str(found.value.get("namespace") or DEFAULT_NAMESPACE),
    )


@dataclass(frozen=True)
class _Entry:
    """A named entry of a kubeconfig; paths in it are relative to ``folder``."""

    place: str
    folder: Path
    value: Mapping[str, Any]

    def path(self, name: str) -> Path | None:
        text = self.value.get(name)
        return self.folder / Path(str(text)).expanduser() if text else None

    def pem(self, name: str) -> str:
        """Return the text of ``NAME-data``, or of the file that ``NAME`` names; the data wins, as in kubectl."""
        if data := self.value.get(f"{name}-data"):
            try:
                return base64.b64decode(str(data), validate=False).decode()
            except (binascii.Error, UnicodeDecodeError) as error:
                raise ConfigError(f"{self.place}.{name}-data: is not base64 of a PEM file: {error}") from None
        path = self.path(name)
        if path is None:
            return ""
        try:
            return path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.place}.{name}: cannot read {path}: {error}") from None


class _Config:
    """The merged content of several kubeconfig files."""

    def __init__(self, contents: Sequence[tuple[Path, Mapping[str, Any]]]) -> None:
        self._entries: dict[tuple[str, str], _Entry] = {}
        self.current = ""
        for file, content in contents:
            self.current = self.current or str(content.get("current-context") or "")
            for kind in ("cluster", "user", "context"):
                for item in content.get(f"{kind}s") or []:
                    if not isinstance(item, Mapping) or not isinstance(item.get(kind) or {}, Mapping):
                        raise ConfigError(f"{file}: {kind}s: an entry is not an object")
                    name = str(item.get("name"))
                    entry = _Entry(f"{file}: {kind} {name}", file.absolute().parent, item.get(kind) or {})
                    self._entries.setdefault((kind, name), entry)

    def find(self, kind: str, name: str) -> _Entry:
        if (kind, name) in self._entries:
            return self._entries[kind, name]
        known = ", ".join(sorted(other for found, other in self._entries if found == kind)) or "none"
        raise ConfigError(f"the kubeconfig has no {kind} {name!r}; it has: {known}")


def _list_files(environment: Mapping[str, str]) -> list[Path]:
    names = [name for name in environment.get("KUBECONFIG", "").split(os.pathsep) if name]
    return [Path(name).expanduser() for name in names] or [DEFAULT_FILE.expanduser()]


def _read(file: Path) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot read the kubeconfig: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: is not YAML: {error}") from None
    if content is not None and not isinstance(content, Mapping):
        raise ConfigError(f"{file}: is not a kubeconfig")
    return content or {}


def _make_cluster(entry: _Entry) -> Cluster:
    value = entry.value
    server = str(value.get("server") or "").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise ConfigError(f"{entry.place}.server: must be a URL of https or http, not {server!r}")
    proxy = str(value.get("proxy-url") or "")
    if proxy and not proxy.startswith(("https://", "http://")):
        raise ConfigError(f"{entry.place}.proxy-url: only proxies of http and https are supported, not {proxy!r}")
    extensions = value.get("extensions") or []
    named = [item for item in extensions if item.get("name") == "client.authentication.k8s.io/exec"]
    return Cluster(
        server=server,
        authority=entry.pem("certificate-authority"),
        insecure=bool(value.get("insecure-skip-tls-verify")),
        tls_server_name=str(value.get("tls-server-name") or ""),
        proxy_url=proxy,
        extension=named[0].get("extension") if named else None,
    )


def _make_user(entry: _Entry) -> User:
    value = entry.value
    if "auth-provider" in value:
        raise ConfigError(f"{entry.place}.auth-provider: is not supported, as in kubectl: use an exec plugin")
    return User(
        token=str(value.get("token") or ""),
        token_file=entry.path("tokenFile"),
        username=str(value.get("username") or ""),
        password=str(value.get("password") or ""),
        certificate=entry.pem("client-certificate"),
        key=entry.pem("client-key"),
        plugin=_make_plugin(entry) if value.get("exec") else None,
        impersonate=tuple(_list_impersonation(value)),
    )


def _make_plugin(entry: _Entry) -> ExecPlugin:
    given = entry.value["exec"]
    version = str(given.get("apiVersion") or "")
    if version not in _EXEC_VERSIONS:
        raise ConfigError(f"{entry.place}.exec.apiVersion: must be {' or '.join(_EXEC_VERSIONS)}, not {version!r}")
    command = str(given.get("command") or "")
    if not command:
        raise ConfigError(f"{entry.place}.exec.command: is missing")
    if os.sep in command:
        command = str(entry.folder / command)
    return ExecPlugin(
        command=command,
        arguments=tuple(str(word) for word in given.get("args") or []),
        variables={str(item["name"]): str(item["value"]) for item in given.get("env") or []},
        api_version=version,
        give_cluster=bool(given.get("provideClusterInfo")),
        interactive=str(given.get("interactiveMode") or "IfAvailable"),
        hint=str(given.get("installHint") or ""),
    )


def _list_impersonation(value: Mapping[str, Any]) -> list[tuple[str, str]]:
    headers = [("Impersonate-User", str(value["as"]))] if value.get("as") else []
    headers += [("Impersonate-Uid", str(value["as-uid"]))] if value.get("as-uid") else []
    headers += [("Impersonate-Group", str(group)) for group in value.get("as-groups") or []]
    for name, items in (value.get("as-user-extra") or {}).items():
        headers += [(f"Impersonate-Extra-{name}", str(item)) for item in items]
    return headers


def _find_pod(environment: Mapping[str, str], folder: Path) -> Access | None:
    """Return the access of the pod in which this process runs; None outside of pods."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    token = folder / "token"
    if not host or not port or not token.exists():
        return None
    try:
        authority = (folder / "ca.crt").read_text()
        namespace = (folder / "namespace").read_text().strip()
    except OSError as error:
        raise ConfigError(f"{folder}: cannot read the identity of this pod: {error}") from None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Access(Cluster(server, authority), User(token_file=token), namespace or DEFAULT_NAMESPACE)
