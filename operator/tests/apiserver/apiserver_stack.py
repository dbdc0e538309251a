# SPDX-License-Identifier: Apache-2.0
"""A control plane with the aggregated API, a broker, and workers with real adapters."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import AsyncIterator, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from kube_api import wait_until
from simyard.api import names
from simyard.api.base import Json
from simyard.manifests import apiservice, install
from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.topology import (
    UserSpec,
    build_apiserver_user_spec,
    build_pool_queue_spec,
    build_pool_user_spec,
    build_worker_queue_spec,
    build_worker_user_spec,
)
from simyard_adapter import wire
from simyard_adapter.bootstrap import Bootstrap
from simyard_adapter.declarations import Interface
from simyard_adapter.python_backend import load_class
from simyard_dev import tools
from simyard_dev.broker import Broker
from simyard_dev.certificates import CertificateAuthority, KeyPair
from simyard_dev.controlplane import ControlPlane
from simyard_dev.file_store import FileStore
from simyard_dev.ports import LOOPBACK, Ports
from simyard_dev.processes import Process
from simyard_sites.kubernetes.resource import Resource

CONNECTOR = Path(__file__).parent / "apiserver_connector.py"
SERVICE = "program"
API = f"/apis/{names.SUBRESOURCES_API_VERSION}"
COMMAND = [str(Path(sys.executable).parent / "simyard"), "apiserver"]
READY_SECONDS = 240.0
PASSWORD = uuid.uuid4().hex


def interface() -> Interface:
    return load_class("apiserver_connector:Program", CONNECTOR.parent).interface


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass
class Worker:
    """A Worker object, and its adapter until that is stopped."""

    namespace: str
    name: str
    uid: str
    process: Process = field(repr=False)


@dataclass
class Running:
    """A namespace with the service, a pool of it, and the pool's one worker."""

    namespace: str
    pool: str
    worker: Worker


class Stack:
    """All parts that the aggregated API needs, except the operator, which the tests replace."""

    def __init__(self, directory: Path, control_plane: ControlPlane, broker: Broker) -> None:
        self.directory = directory
        self.control_plane = control_plane
        self.keys = directory / "keys"
        self.ports = Ports(directory)
        self.process = Process(directory, "apiserver")
        self.files = FileStore(directory / "files")
        self.authority = CertificateAuthority(self.keys, "serving-ca")
        admin = BrokerAccess.from_url(broker.url, broker.management_url or "")
        self.admin_access = replace(admin, vhost="apiserver-tests")
        self.access = self.admin_access.as_user("apiserver-tests", PASSWORD)
        self.front_proxy = KeyPair(
            control_plane.directory / "keys" / "front-proxy-client.crt",
            control_plane.directory / "keys" / "front-proxy-client.key",
        )

    def up(self) -> None:
        self._make_broker()
        self.files.start()
        port = self.ports.reserve("apiserver")
        self.ports.reserve("metrics")
        self.authority.issue_server("serving", [apiservice.get_host(names.SYSTEM_NAMESPACE), "localhost", LOOPBACK])
        endpoint = apiservice.Endpoint(self.authority.files.certificate.read_bytes(), port)
        objects = install.build_objects(names.SYSTEM_NAMESPACE, endpoint)
        self.apply(*objects)
        crds = [item["metadata"]["name"] for item in objects if item["kind"] == "CustomResourceDefinition"]
        self.kubectl("wait", "--for=condition=Established", "--timeout=240s", "crd", *crds)
        kubeconfig = self.directory / "apiserver.kubeconfig"
        self.control_plane.write_service_account_kubeconfig(kubeconfig, names.SYSTEM_NAMESPACE, names.APISERVER)
        self.process.start(
            [
                *COMMAND,
                f"--kubeconfig={kubeconfig}",
                f"--bind={LOOPBACK}",
                f"--port={port}",
                f"--metrics-port={self.ports['metrics']}",
                f"--tls-cert={self.keys / 'serving.crt'}",
                f"--tls-key={self.keys / 'serving.key'}",
                f"--files-directory={self.files.access}",
                "--drain-seconds=0",
            ]
        )
        self.process.wait_ready(self._is_ready, READY_SECONDS)
        self.apply(self.secret())
        name = f"{names.VERSION}.{names.SUBRESOURCES_GROUP}"
        self.kubectl("wait", f"apiservice/{name}", "--for=condition=Available", "--timeout=240s")
        wait_until(lambda: "broker: connected" in self.metrics_port("/readyz"))

    def replace_broker_user(self) -> None:
        """Replace the credentials, as the operator does."""
        before, self.access = self.access, self.admin_access.as_user(unique("apiserver-tests"), PASSWORD)
        self._at_broker(replace(build_apiserver_user_spec(), name=self.access.username))
        self.apply(self.secret())
        self.run(self._admin(lambda broker: broker.delete_user(before.username)))

    def secret(self) -> Json:
        """Return the Secret that the operator writes for the apiserver."""
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": names.APISERVER_BROKER_SECRET, "namespace": names.SYSTEM_NAMESPACE},
            "stringData": self.access.to_secret(),
        }

    def metrics_port(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self.ports['metrics']}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    # The Kubernetes API

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        return self.control_plane.kubectl(*arguments, stdin=stdin)

    def try_kubectl(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl, and return the result even if it fails."""
        kubectl = tools.ensure(["kubectl"])["kubectl"]
        command = [kubectl, f"--kubeconfig={self.control_plane.kubeconfig}", *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=240, check=False)

    def apply(self, *objects: Json) -> None:
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)

    def status(self, resource: Resource, namespace: str, name: str, status: Json) -> None:
        self.kubectl(
            "patch", f"{resource.plural}.{resource.group}", name, f"--namespace={namespace}", "--subresource=status",
            "--type=merge", "--patch", json.dumps({"status": status}),
        )  # fmt: skip

    def set_condition(
        self, resource: Resource, namespace: str, name: str, kind: str, good: bool, reason: str, message: str = ""
    ) -> None:
        condition = {
            "type": kind,
            "status": "True" if good else "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        self.status(resource, namespace, name, {"conditions": [condition]})

    # The operator's part

    def make_service(self, namespace: str) -> None:
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        self.apply(
            {
                "apiVersion": names.API_VERSION,
                "kind": "SimulationService",
                "metadata": {"name": SERVICE, "namespace": namespace},
                "spec": {
                    "interface": interface().to_json(),
                    "connector": {"python": {"class": "apiserver_connector:Program"}},
                },
            }
        )

    def make_pool(self, namespace: str, name: str) -> None:
        uid = self._create(names.WORKER_POOLS, namespace, name, {"serviceRef": {"name": SERVICE}, "replicas": 1})
        user = wire.name_pool_user(uid)
        self._at_broker(build_pool_user_spec(uid))
        self.run(self._declare(build_pool_queue_spec(user)))
        self.set_condition(
            names.WORKER_POOLS, namespace, name, "Available", False, "WorkersStarting", "0 of 1 workers are ready"
        )

    def make_worker(
        self, namespace: str, name: str, pool: str = "", *, ready: bool = True, adapter: bool = True
    ) -> Worker:
        """Create a Worker with its queue, and by default start its adapter and set its condition ``Ready``."""
        owner = [self._owner(namespace, pool)] if pool else []
        spec = {"serviceRef": {"name": SERVICE}, "site": "test"}
        uid = self._create(names.WORKERS, namespace, name, spec, owner)
        user = wire.name_pool_user(owner[0]["uid"]) if pool else wire.name_standalone_user(uid)
        if not pool:
            self._at_broker(build_worker_user_spec(user))
        self.run(self._declare(build_worker_queue_spec(user, uid)))
        worker = Worker(namespace, name, uid, Process(self.directory / "workers" / uid, "adapter"))
        if adapter:
            self._start_adapter(worker, user, pool)
        if ready:
            self.set_ready(worker, True)
        return worker

    def _start_adapter(self, worker: Worker, user: str, pool: str) -> None:
        bootstrap = Bootstrap(
            namespace=worker.namespace,
            worker=worker.name,
            worker_uid=worker.uid,
            service=SERVICE,
            pool=pool,
            broker=self.admin_access.as_user(user, PASSWORD).build_address(),
            interface=interface(),
            connector={"python": {"class": "apiserver_connector:Program"}},
            files={"apiserver_connector.py": CONNECTOR.read_text()},
        )
        directory = worker.process.log_file.parent
        directory.mkdir(parents=True)
        document = directory / "bootstrap.json"
        document.write_bytes(bootstrap.to_bytes())
        state = directory / "state"
        worker.process.start(
            [sys.executable, "-m", "simyard_adapter", "run", f"--bootstrap={document}", f"--directory={state}"]
        )
        path = path_of(worker.namespace, "workers", worker.name, "attributes/state")
        wait_until(lambda: "state" in json.loads(self.kubectl("get", "--raw", path))["values"])
        if pool:
            self._tell_to_take(wire.name_worker_queue(user, worker.uid))

    def _tell_to_take(self, queue: str) -> None:
        message = {
            "routing_key": queue,
            "payload": "{}",
            "payload_encoding": "string",
            "properties": {"type": wire.Request.TAKE.value},
        }
        self._management("POST", f"exchanges/{quote(self.admin_access.vhost, safe='')}/amq.default/publish", message)

    def set_ready(self, worker: Worker, ready: bool, reason: str = "Registered", message: str = "") -> None:
        self.set_condition(names.WORKERS, worker.namespace, worker.name, "Ready", ready, reason, message)

    def _create(
        self, resource: Resource, namespace: str, name: str, spec: Json, owners: list[Json] | None = None
    ) -> str:
        manifest = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners or []},
            "spec": spec,
        }
        created = json.loads(self.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(manifest)))
        return str(created["metadata"]["uid"])

    def _owner(self, namespace: str, pool: str) -> Json:
        found = json.loads(self.kubectl("get", "workerpools.simyard.dev", pool, f"--namespace={namespace}", "-o=json"))
        return {
            "apiVersion": names.API_VERSION,
            "kind": "WorkerPool",
            "name": pool,
            "uid": found["metadata"]["uid"],
            "controller": True,
        }

    # The broker

    def _make_broker(self) -> None:
        admin = self.admin_access
        vhost = quote(admin.vhost, safe="")
        self._management("PUT", f"vhosts/{vhost}")
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        self._management("PUT", f"permissions/{vhost}/{admin.username}", everything)
        self.run(self._admin(lambda broker: broker.ensure_platform()))
        self._at_broker(replace(build_apiserver_user_spec(), name=self.access.username))

    def _management(self, method: str, path: str, body: Json | None = None) -> None:
        access = self.admin_access
        request = urllib.request.Request(
            f"{access.management_url}/api/{path}",
            json.dumps(body or {}).encode(),
            {"Authorization": aiohttp.encode_basic_auth(access.username, access.password)},
            method=method,
        )
        urllib.request.urlopen(request, timeout=240).close()

    def _at_broker(self, user: UserSpec) -> None:
        self.run(self._admin(lambda admin: admin.ensure_user(user, PASSWORD)))

    async def _declare(self, *queues: Any) -> None:
        await self._admin(lambda admin: admin.ensure_queues(queues))

    async def _admin(self, use: Any) -> None:
        admin = BrokerAdmin(self.admin_access)
        try:
            await use(admin)
        finally:
            await admin.aclose()

    @staticmethod
    def run(coroutine: Coroutine[Any, Any, None]) -> None:
        with ThreadPoolExecutor(1) as pool:  # the caller may be a coroutine
            pool.submit(asyncio.run, coroutine).result()

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self.metrics_port("/readyz"))
        return False


@dataclass
class Client:
    """A client of the aggregated apiserver that acts as kube-apiserver's front proxy, or as an impostor of it."""

    base: str
    session: aiohttp.ClientSession

    async def request(
        self,
        method: str,
        path: str,
        *,
        user: str = "",
        groups: tuple[str, ...] = ("system:masters",),
        data: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        sent: list[tuple[str, str]] = list((headers or {}).items())
        if user:
            sent += [("X-Remote-User", user), *(("X-Remote-Group", group) for group in groups)]
        async with self.session.request(
            method, self.base + path, data=data, headers=sent, skip_auto_headers=["Content-Type"]
        ) as answer:
            return Answer(answer.status, answer.headers, await answer.text())

    async def post(self, path: str, body: Json | None = None, **options: Any) -> Answer:
        return await self.request(
            "POST", path, user="admin", data=None if body is None else json.dumps(body).encode(), **options
        )

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.request("GET", path, user="admin", **options)


@contextlib.asynccontextmanager
async def client_of(port: int, authority: Path, certificate: KeyPair | None) -> AsyncIterator[Client]:
    context = ssl.create_default_context(cafile=str(authority))
    if certificate is not None:
        context.load_cert_chain(certificate.certificate, certificate.key)
    connector = aiohttp.TCPConnector(ssl=context)
    timeout = aiohttp.ClientTimeout(total=50)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield Client(f"https://localhost:{port}", session)


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def path_of(namespace: str, resource: str, name: str, rest: str = "") -> str:
    return f"{API}/namespaces/{namespace}/{resource}/{name}" + (f"/{rest}" if rest else "")
