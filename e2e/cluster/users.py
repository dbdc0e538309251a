# SPDX-License-Identifier: Apache-2.0
"""Create users of the cluster: each is a ServiceAccount with a token and a kubeconfig of its own."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from environment import Hidden
from script_pods import Json, Kubectl, apply

TOKEN_LIFE = "8h"
SECONDS = 120


@dataclass(frozen=True)
class User:
    """A user; ``name`` is the name that RBAC knows."""

    name: str
    token: Hidden
    kubeconfig: Path

    def ask(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl as the user and return the result, also of a failure."""
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        command = ["kubectl", *arguments]
        return subprocess.run(
            command, input=stdin, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    def does(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl as the user and return the output; it must succeed."""
        done = self.ask(*arguments, stdin=stdin)
        assert done.returncode == 0, f"{self.name}: kubectl {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def is_refused(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl as the user and return the message; it must be forbidden."""
        done = self.ask(*arguments, stdin=stdin)
        said = done.stdout + done.stderr
        assert done.returncode != 0, f"{self.name} is allowed to run kubectl {' '.join(arguments)}\n{said}"
        assert "forbidden" in said.lower(), f"{self.name}: kubectl {' '.join(arguments)}\n{said}"
        return said


def make(kubectl: Kubectl, namespace: str, name: str, role: str, folder: Path, *, kind: str = "ClusterRole") -> User:
    """Create a user with a role in one namespace."""
    account(kubectl, namespace, name, role, kind=kind)
    return of_account(kubectl, namespace, name, folder)


def account(kubectl: Kubectl, namespace: str, name: str, role: str, *, kind: str = "ClusterRole") -> None:
    """Create a ServiceAccount with a role in its namespace."""
    binding: Json = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
    apply(kubectl, namespace, [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}, binding])


def let_make_machines(kubectl: Kubectl, namespace: str, name: str) -> None:
    """Grant a ServiceAccount the right to create Workers, which simyard-edit does not include."""
    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": ["simyard.dev"], "resources": ["workers"], "verbs": ["create"]}
    meta = {"name": "makes-machines"}
    role: Json = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": [rule]}
    binding: Json = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": group, "kind": "Role", "name": meta["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
    apply(kubectl, namespace, [role, binding])


def of_account(kubectl: Kubectl, namespace: str, name: str, folder: Path) -> User:
    """Return the user that has the token of a ServiceAccount."""
    told = kubectl("create", "token", name, f"--namespace={namespace}", f"--duration={TOKEN_LIFE}")
    token = Hidden(told.strip())
    known = json.loads(kubectl("config", "view", "--minify", "--raw", "-o", "json"))
    context = {"cluster": known["clusters"][0]["name"], "user": name, "namespace": namespace}
    known |= {
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name,
    }
    file = folder / f"{namespace}-{name}.json"
    file.write_text(json.dumps(known))
    return User(f"system:serviceaccount:{namespace}:{name}", token, file)


def signed(kubectl: Kubectl, name: str, request: bytes) -> str:
    """Return the certificate (PEM) that the cluster's authority for clients issues for a signing request."""
    spec = {
        "request": base64.b64encode(request).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
        "expirationSeconds": 3600,
    }
    manifest = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "spec": spec}
    kubectl("create", "-f", "-", stdin=json.dumps({**manifest, "metadata": {"name": name}}))
    try:
        kubectl("certificate", "approve", name)
        kubectl("wait", f"csr/{name}", "--for=jsonpath={.status.certificate}", "--timeout=60s")
        return base64.b64decode(kubectl("get", "csr", name, "-o", "jsonpath={.status.certificate}")).decode()
    finally:
        kubectl("delete", "csr", name)
