# SPDX-License-Identifier: Apache-2.0
"""Write kubeconfig files that embed their certificates and keys, so that they can be copied elsewhere."""

import base64
from pathlib import Path

import yaml

from simyard_dev.certificates import KeyPair
from simyard_dev.files import write_whole

NAME = "simyard"


def write_kubeconfig(
    path: Path, *, server: str, authority: Path, user: KeyPair | str, namespace: str = "default"
) -> None:
    """Write a kubeconfig (mode 0600) for a user with a client certificate or a bearer token."""
    credentials = (
        {"token": user}
        if isinstance(user, str)
        else {"client-certificate-data": _embedded(user.certificate), "client-key-data": _embedded(user.key)}
    )
    cluster = {"server": server, "certificate-authority-data": _embedded(authority)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": credentials}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": namespace}}],
        "current-context": NAME,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, yaml.safe_dump(content, sort_keys=False), private=True)


def _embedded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
