# SPDX-License-Identifier: Apache-2.0
"""Kubeconfig files are read as kubectl reads them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from simyard_client.errors import ConfigError
from simyard_client.kubeconfig import load_access


def write(path: Path, **changes: Any) -> Path:
    """Write a kubeconfig with one cluster, one user and one context, each changed by ``changes``."""
    content = {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "https://c:6443/", **changes.pop("cluster", {})}}],
        "users": [{"name": "u", "user": changes.pop("user", {"token": "t"})}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", **changes.pop("context", {})}}],
        **changes,
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def test_the_current_context_decides(tmp_path: Path) -> None:
    access = load_access(write(tmp_path / "config", context={"namespace": "lab"}))
    assert (access.cluster.server, access.user.token, access.namespace) == ("https://c:6443", "t", "lab")
    assert load_access(tmp_path / "config", namespace="other").namespace == "other"


def test_the_first_of_several_files_wins_and_missing_files_are_skipped(tmp_path: Path) -> None:
    first = write(tmp_path / "first", user={"token": "first"})
    second = write(tmp_path / "second", user={"token": "second"}, **{"current-context": "there"})
    more = yaml.safe_load(second.read_text())
    more["contexts"].append({"name": "there", "context": {"cluster": "c", "user": "u", "namespace": "lab"}})
    second.write_text(yaml.safe_dump(more))
    environment = {"KUBECONFIG": f"{tmp_path / 'absent'}:{first}::{second}"}
    assert load_access(environment=environment).user.token == "first"
    assert load_access(context="there", environment=environment).namespace == "lab"


def test_paths_are_relative_to_their_file_and_data_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    folder = tmp_path / "folder"
    file = write(
        folder / "config",
        cluster={"certificate-authority": "ca.crt"},
        user={
            "tokenFile": "token",
            "client-certificate": "absent",
            "client-certificate-data": base64.b64encode(b"PEM").decode(),
        },
    )
    (folder / "ca.crt").write_text("CA")
    access = load_access(file)
    assert (access.cluster.authority, access.user.certificate) == ("CA", "PEM")
    assert access.user.token_file == folder / "token"


def test_settings_of_the_connection_are_read(tmp_path: Path) -> None:
    cluster = {"insecure-skip-tls-verify": True, "tls-server-name": "name", "proxy-url": "http://proxy:3128"}
    access = load_access(write(tmp_path / "config", cluster=cluster, user={"as": "ada", "as-groups": ["lab"]}))
    assert access.cluster.insecure
    assert (access.cluster.tls_server_name, access.cluster.proxy_url) == ("name", "http://proxy:3128")
    assert access.user.impersonate == (("Impersonate-User", "ada"), ("Impersonate-Group", "lab"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"current-context": ""}, "current-context is not set"),
        ({"current-context": "nowhere"}, "no context 'nowhere'; it has: here"),
        ({"context": {"cluster": "other"}}, "no cluster 'other'; it has: c"),
        ({"cluster": {"server": "c:6443"}}, "server: must be a URL"),
        ({"cluster": {"proxy-url": "socks5://proxy"}}, "proxy-url: only proxies of http"),
        ({"cluster": {"certificate-authority": "absent"}}, "certificate-authority: cannot read"),
        ({"cluster": {"certificate-authority-data": "x"}}, "certificate-authority-data: is not base64"),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "auth-provider: is not supported"),
        ({"user": {"exec": {"command": "x", "apiVersion": "v0"}}}, "exec.apiVersion: must be"),
        ({"clusters": ["c"]}, "an entry is not an object"),
    ],
)
def test_an_error_names_the_place(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_access(write(tmp_path / "config", **changes))


@pytest.mark.parametrize(("text", "message"), [("a: [", "is not YAML"), ("- a", "is not a kubeconfig")])
def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_access(tmp_path / "config")


def test_a_pod_has_the_identity_of_its_service_account(tmp_path: Path) -> None:
    for name, text in {"token": "t", "ca.crt": "CA", "namespace": "lab"}.items():
        (tmp_path / name).write_text(text)
    absent = {"KUBECONFIG": str(tmp_path / "absent")}
    pod = {**absent, "KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = load_access(environment=pod, pod_folder=tmp_path)
    assert (access.cluster.server, access.cluster.authority, access.namespace) == ("https://[fd00::1]:443", "CA", "lab")
    assert access.user.token_file == tmp_path / "token"
    with pytest.raises(ConfigError, match="there is no kubeconfig"):
        load_access(environment=absent, pod_folder=tmp_path)
