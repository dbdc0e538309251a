"""Ask an API server, as its administrator or as anybody whom the administrator impersonates. For tests and scripts."""

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

REQUEST_SECONDS = 30
PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class Answer:
    """What the API server said: the HTTP status and the object, or the ``metav1.Status`` of a refusal."""

    status: int
    body: Json

    @property
    def accepted(self) -> bool:
        """Whether it did what was asked."""
        return self.status < http.HTTPStatus.MULTIPLE_CHOICES

    @property
    def message(self) -> str:
        """Why it did not."""
        return str(self.body.get("message", ""))


def path_of(manifest: Json, *, named: bool = True) -> str:
    """The path of an object, or of the collection that it belongs to."""
    version, plural = manifest["apiVersion"], manifest["kind"].lower()
    plural = f"{plural[:-1]}ies" if plural.endswith("y") else f"{plural}s"
    namespace = manifest["metadata"].get("namespace")
    parts = ["/apis" if "/" in version else "/api", version, *(["namespaces", namespace] if namespace else []), plural]
    if named:
        parts.append(manifest["metadata"]["name"])
    return "/".join(parts)


def access_of(kubeconfig: Path) -> tuple[str, ssl.SSLContext]:
    """The URL of the server, and how to verify it and be known to it by a client certificate."""
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
    """Requests over one connection. A dry run goes through defaults, validation and admission, and stores nothing."""

    def __init__(self, kubeconfig: Path) -> None:
        url, context = access_of(kubeconfig)
        server = urlsplit(url)
        self._connection = http.client.HTTPSConnection(
            str(server.hostname), server.port, timeout=REQUEST_SECONDS, context=context
        )

    def request(
        self, method: str, path: str, body: Json | None = None, *, user: str = "", media: str = "application/json"
    ) -> Answer:
        """One request, as ``user`` if one is named."""
        headers = {"Content-Type": media, "Accept": "application/json", **({"Impersonate-User": user} if user else {})}
        data = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, data, headers)
            response = self._connection.getresponse()
        except (http.client.HTTPException, OSError):  # the server closes a connection that was idle for 90 s
            self._connection.close()
            self._connection.request(method, path, data, headers)
            response = self._connection.getresponse()
        return Answer(response.status, json.loads(response.read()))

    def get(self, manifest: Json) -> Answer:
        """The object as it is now."""
        return self.request("GET", path_of(manifest))

    def create(self, manifest: Json, *, user: str = "", dry_run: bool = False) -> Answer:
        """Create an object."""
        query = "?dryRun=All" if dry_run else ""
        return self.request("POST", path_of(manifest, named=False) + query, manifest, user=user)

    def apply(self, manifest: Json, *, user: str = "") -> Answer:
        """Create an object, or make it what the manifest says (server-side apply)."""
        path = f"{path_of(manifest)}?fieldManager=simyard&force=true"
        return self.request("PATCH", path, manifest, user=user, media="application/apply-patch+yaml")

    def patch(self, manifest: Json, change: Json, *, user: str = "") -> Answer:
        """Change an object (merge patch)."""
        return self.request("PATCH", path_of(manifest), change, user=user, media="application/merge-patch+json")

    def replace_status(self, manifest: Json, *, dry_run: bool = False) -> Answer:
        """Write the status that the manifest has."""
        return self.request("PUT", f"{path_of(manifest)}/status{'?dryRun=All' if dry_run else ''}", manifest)

    def install(self, manifests: Iterable[Json]) -> None:
        """Apply them one after the other; kinds are there for those that follow.

        Raises:
            RuntimeError: one was refused.
        """
        for manifest in manifests:
            answer = self.apply(manifest)
            if not answer.accepted:
                raise RuntimeError(f"{path_of(manifest)}: {answer.message}")
            if manifest["kind"] == "CustomResourceDefinition":
                eventually(partial(self._is_served, manifest))

    def bind(self, user: str, namespace: str, kind: str, role: str) -> None:
        """Give a user a Role or ClusterRole in a namespace."""
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
        """What ``kubectl auth can-i --as USER`` asks; ``where`` may say ``namespace`` and ``name``."""
        kind = {"verb": verb, "group": resource.group, "resource": resource.plural, "subresource": subresource}
        review: Json = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {"resourceAttributes": {**kind, **where}},
        }
        answer = self.request("POST", path_of(review, named=False), review, user=user)
        return bool(answer.body["status"]["allowed"])

    def _is_served(self, definition: Json) -> bool:
        conditions = self.get(definition).body["status"].get("conditions") or []
        return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)


def eventually(check: Callable[[], bool]) -> None:
    """Wait until it is so: what the API server learns by watching takes it a moment.

    Raises:
        TimeoutError: it did not become so in time.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not become so")
        time.sleep(0.05)
