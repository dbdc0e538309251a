# SPDX-License-Identifier: Apache-2.0
"""Send requests to an API server as its administrator, who may impersonate other users. For tests and scripts."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from simyard.api.base import Json
from simyard_sites.kubernetes.resource import Resource

REQUEST_SECONDS = 120
PATIENCE_SECONDS = 240


@dataclass(frozen=True)
class Answer:
    """An answer of the API server: the HTTP status and the object, or the ``metav1.Status`` of a refusal."""

    status: int
    body: Json

    @property
    def accepted(self) -> bool:
        """True if the API server accepted the request."""
        return self.status < http.HTTPStatus.MULTIPLE_CHOICES

    @property
    def message(self) -> str:
        """The reason of a refusal."""
        return str(self.body.get("message", ""))


def build_path(manifest: Json, *, named: bool = True) -> str:
    """Return the path of an object, or of its collection if ``named`` is false."""
    version, plural = manifest["apiVersion"], manifest["kind"].lower()
    plural = f"{plural[:-1]}ies" if plural.endswith("y") else f"{plural}s"
    namespace = manifest["metadata"].get("namespace")
    parts = ["/apis" if "/" in version else "/api", version, *(["namespaces", namespace] if namespace else []), plural]
    if named:
        parts.append(manifest["metadata"]["name"])
    return "/".join(parts)


def read_access(kubeconfig: Path) -> tuple[str, ssl.SSLContext]:
    """Return the URL of the server and a TLS context that authenticates both sides."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    with tempfile.NamedTemporaryFile() as pem:
        for part in ("client-certificate-data", "client-key-data"):
            pem.write(base64.b64decode(user[part]) + b"\n")
        pem.flush()
        context.load_cert_chain(pem.name)
    return cluster["server"], context


class Api:
    """A connection to an API server.

    In a dry run, the server applies defaults, validation and admission, but stores nothing.
    """

    def __init__(self, kubeconfig: Path) -> None:
        url, context = read_access(kubeconfig)
        server = urlsplit(url)
        self._connection = http.client.HTTPSConnection(
            str(server.hostname), server.port, timeout=REQUEST_SECONDS, context=context
        )

    def request(
        self, method: str, path: str, body: Json | None = None, *, user: str = "", media: str = "application/json"
    ) -> Answer:
        """Send one request and return the answer; ``user`` names the user to impersonate."""
        headers = {"Content-Type": media, "Accept": "application/json", **({"Impersonate-User": user} if user else {})}
        data = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, data, headers)
            response = self._connection.getresponse()
        except (http.client.HTTPException, OSError):  # the server closes connections that were idle for 90 s
            self._connection.close()
            self._connection.request(method, path, data, headers)
            response = self._connection.getresponse()
        return Answer(response.status, json.loads(response.read()))

    def get(self, manifest: Json) -> Answer:
        """Return the stored object."""
        return self.request("GET", build_path(manifest))

    def create(self, manifest: Json, *, user: str = "", dry_run: bool = False) -> Answer:
        """Create an object."""
        query = "?dryRun=All" if dry_run else ""
        return self.request("POST", build_path(manifest, named=False) + query, manifest, user=user)

    def apply(self, manifest: Json, *, user: str = "") -> Answer:
        """Create an object, or change it to match the manifest (server-side apply)."""
        path = f"{build_path(manifest)}?fieldManager=simyard&force=true"
        return self.request("PATCH", path, manifest, user=user, media="application/apply-patch+yaml")

    def patch(self, manifest: Json, change: Json, *, user: str = "") -> Answer:
        """Change an object (merge patch)."""
        return self.request("PATCH", build_path(manifest), change, user=user, media="application/merge-patch+json")

    def replace_status(self, manifest: Json, *, dry_run: bool = False) -> Answer:
        """Replace the status by that of the manifest."""
        return self.request("PUT", f"{build_path(manifest)}/status{'?dryRun=All' if dry_run else ''}", manifest)

    def install(self, manifests: Iterable[Json]) -> None:
        """Apply the manifests in order; a CustomResourceDefinition is served before the next one is applied.

        Raises:
            RuntimeError: the API server refused a manifest.
        """
        for manifest in manifests:
            answer = self.apply(manifest)
            if not answer.accepted:
                raise RuntimeError(f"{build_path(manifest)}: {answer.message}")
            if manifest["kind"] == "CustomResourceDefinition":
                wait_until(partial(self._is_served, manifest))

    def bind(self, user: str, namespace: str, kind: str, role: str) -> None:
        """Grant a Role or ClusterRole in a namespace to a user."""
        group = "rbac.authorization.k8s.io"
        binding: Json = {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"{role}-{user}", "namespace": namespace},
            "roleRef": {"apiGroup": group, "kind": kind, "name": role},
            "subjects": [{"kind": "User", "apiGroup": group, "name": user}],
        }
        self.install([binding])

    def may(self, user: str, verb: str, resource: Resource, subresource: str = "", **where: str) -> bool:
        """Return what ``kubectl auth can-i --as USER`` answers; ``where`` may have ``namespace`` and ``name``."""
        kind = {"verb": verb, "group": resource.group, "resource": resource.plural, "subresource": subresource}
        review: Json = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {"resourceAttributes": {**kind, **where}},
        }
        answer = self.request("POST", build_path(review, named=False), review, user=user)
        return bool(answer.body["status"]["allowed"])

    def _is_served(self, definition: Json) -> bool:
        conditions = self.get(definition).body["status"].get("conditions") or []
        return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)


def wait_until(check: Callable[[], bool]) -> None:
    """Wait until ``check`` is true. The API server learns of changes by watches, so with a delay.

    Raises:
        TimeoutError: ``check`` stayed false for PATIENCE_SECONDS.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition was still false after {PATIENCE_SECONDS} s")
        time.sleep(0.05)
