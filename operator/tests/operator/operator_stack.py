# SPDX-License-Identifier: Apache-2.0
"""A control plane, a broker and emulated sites, with operators that are processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from kube_api import Api
from simyard.api import names
from simyard.api.base import Json
from simyard.manifests import install
from simyard_adapter.python_backend import load_class
from simyard_dev.broker import Broker
from simyard_dev.controlplane import ControlPlane
from simyard_dev.ports import LOOPBACK, Ports
from simyard_dev.processes import Identity, Process
from simyard_dev.providers import complete_emulated
from simyard_sites.base import SiteConfig
from simyard_sites.emulated import EmulatedSite
from simyard_sites.kubernetes.resource import Resource

CONNECTOR = Path(__file__).parent / "operator_connector.py"
SIMYARD = [sys.executable, "-c", "from simyard.roles import main; main()"]
READY_SECONDS = 240.0
PATIENCE_SECONDS = 240.0
SERVICE = "program"


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def wait_until(check: Callable[[], Any], what: str = "", seconds: float = PATIENCE_SECONDS) -> Any:
    """Wait until the check gives something true, and give that."""
    deadline = time.monotonic() + seconds
    while not (value := check()):
        if time.monotonic() > deadline:
            raise TimeoutError(what or "it did not become so")
        time.sleep(0.05)
    return value


class Stack:
    """What operators need. Every test has a namespace and a site of its own; all share the operators."""

    def __init__(self, directory: Path, control_plane: ControlPlane, broker: Broker) -> None:
        self.directory = directory
        self.control_plane = control_plane
        self.broker = broker
        self.emulated = directory / "emulated"
        self.ports = Ports(directory)
        self._operators: dict[str, Operator] = {}
        self._kubeconfig = directory / "operator.kubeconfig"
        self.api = Api(control_plane.kubeconfig)
        self._left: list[Scene] = []

    def up(self) -> None:
        self.api.install(install.build_objects(names.SYSTEM_NAMESPACE))
        self.control_plane.write_service_account_kubeconfig(self._kubeconfig, names.SYSTEM_NAMESPACE, names.OPERATOR)

    def down(self) -> None:
        for operator in self._operators.values():  # or they would start the clouds again
            operator.process.stop(0)
        self._end_clouds("*")

    def _end_clouds(self, pattern: str) -> None:
        for file in self.emulated.glob(f"{pattern}/pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGTERM)

    def operator(self, name: str = "operator", **options: str) -> Operator:
        """The operator of that name, one for all tests."""
        if name not in self._operators:
            self._operators[name] = Operator(self, name, options)
        return self._operators[name]

    def leave(self, scene: Scene) -> None:
        """Delete the pools and Workers of a scene; a later test need not wait until the operator has done that."""
        for kind in (names.WORKER_POOLS, names.WORKERS):
            path = f"/apis/{kind.api_version}/namespaces/{scene.namespace}/{kind.plural}"
            assert self.api.request("DELETE", path).accepted
        self._left.append(scene)

    def tidy(self) -> None:
        """Delete the sites of former scenes, and end their clouds, once they have no Workers and no machines.

        Each operator that starts connects to all sites, and so each of them would cost each later test some time.
        """
        empty = [scene for scene in self._left if not scene.workers() and not scene.machines()]
        for scene in empty:
            self._left.remove(scene)
            if self.get(names.CLOUD_SITES, "", scene.site) is not None:  # a test may have deleted it
                self.delete(names.CLOUD_SITES, "", scene.site)
            self._end_clouds(f"*{scene.site}*")

    # The Kubernetes API

    def make(self, kind: Resource, namespace: str, name: str, spec: Json) -> Json:
        answer = self.api.create(self.manifest(kind, namespace, name, spec))
        assert answer.accepted, answer.message
        return answer.body

    @staticmethod
    def manifest(kind: Resource, namespace: str, name: str, spec: Json | None = None) -> Json:
        metadata = {"name": name, **({"namespace": namespace} if kind.namespaced else {})}
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec or {}}

    def get(self, kind: Resource, namespace: str, name: str) -> Json | None:
        answer = self.api.get(self.manifest(kind, namespace, name))
        return answer.body if answer.accepted else None

    def list(self, kind: Resource, namespace: str) -> list[Json]:
        path = f"/apis/{kind.api_version}/namespaces/{namespace}/{kind.plural}"
        return list(self.api.request("GET", path).body["items"])

    def patch(self, kind: Resource, namespace: str, name: str, change: Json) -> None:
        answer = self.api.patch(self.manifest(kind, namespace, name), change)
        assert answer.accepted, answer.message

    def delete(self, kind: Resource, namespace: str, name: str) -> None:
        path = f"/apis/{kind.api_version}{f'/namespaces/{namespace}' if kind.namespaced else ''}/{kind.plural}/{name}"
        answer = self.api.request("DELETE", path)
        assert answer.accepted, answer.message

    # The broker

    def broker_names(self, kind: str) -> set[str]:
        """The names of all queues or users."""
        request = urllib.request.Request(
            f"{self.broker.management_url}/api/{kind}?columns=name",
            headers={"Authorization": aiohttp.encode_basic_auth(self.broker.user, self.broker.password)},
        )
        with urllib.request.urlopen(request, timeout=240) as answer:
            return {item["name"] for item in json.load(answer)}


class Operator:
    """An operator process, under its own ServiceAccount."""

    def __init__(self, stack: Stack, name: str, options: dict[str, str]) -> None:
        self._stack = stack
        self._options = options
        self.process = Process(stack.directory, name)
        self._port = stack.ports.reserve(f"{name}-metrics")

    def start(self, *, ready: bool = True) -> None:
        broker = self._stack.broker
        self.process.start(
            [
                *SIMYARD,
                "operator",
                f"--kubeconfig={self._stack._kubeconfig}",
                f"--metrics-port={self._port}",
                "--lease-seconds=10",
                f"--amqp-statistics-seconds={broker.statistics_seconds}",
                *(f"--{key.replace('_', '-')}={value}" for key, value in self._options.items()),
            ],
            {
                **os.environ,
                "AMQP_URL": broker.url,
                "AMQP_MANAGEMENT_URL": broker.management_url or "",
                "SIMYARD_EMULATED_DIR": str(self._stack.emulated),
            },
        )
        if ready:
            self.process.wait_ready(self.is_ready, READY_SECONDS)

    def kill(self) -> None:
        """As a crash does: nothing is cleaned up."""
        identity = self.process.identity
        assert identity is not None, "it runs"
        os.kill(identity.pid, signal.SIGKILL)
        assert identity.wait_gone(10)

    def stop(self) -> None:
        self.process.stop(20)

    def signal(self, number: int) -> None:
        identity = self.process.identity
        assert identity is not None, "it runs"
        self._signalled = identity
        os.kill(identity.pid, number)

    def gone_within(self, seconds: float) -> bool:
        """Whether the process that was signalled ends in time."""
        return self._signalled.wait_gone(seconds)

    def try_answer(self, path: str) -> str:
        with contextlib.suppress(OSError):
            return self.answer(path)
        return ""

    def is_ready(self) -> bool:
        return "renewed" in self.try_answer("readyz")

    def answer(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self._port}/{path}", timeout=5) as answer:
            return str(answer.read().decode())


@dataclass
class Scene:
    """A test's own namespace, service and site."""

    stack: Stack
    namespace: str
    site: str

    def make_pool(self, replicas: int, name: str = "pool", **spec: Any) -> Json:
        body = {"serviceRef": {"name": SERVICE}, "replicas": replicas, "placement": {"sites": [self.site]}, **spec}
        return self.stack.make(names.WORKER_POOLS, self.namespace, name, body)

    def pool(self, name: str = "pool") -> Json:
        found = self.stack.get(names.WORKER_POOLS, self.namespace, name)
        assert found is not None, f"{name} exists"
        return found

    def available(self, ready: int, name: str = "pool") -> Json:
        """Wait until the pool is Available with exactly so many ready workers, and the newest generation observed."""

        def check() -> Json | None:
            pool = self.pool(name)
            status = pool.get("status") or {}
            current = status.get("observedGeneration") == pool["metadata"]["generation"]
            good = condition(pool, "Available")["status"] == "True" or ready == 0
            counts = (status.get("readyReplicas", 0), status.get("replicas", 0)) == (ready, ready)
            return pool if current and good and counts else None

        try:
            found: Json = wait_until(check)
        except TimeoutError:
            raise AssertionError(json.dumps(self.pool(name).get("status"), indent=1)) from None
        return found

    def workers(self) -> list[Json]:
        return self.stack.list(names.WORKERS, self.namespace)

    def ready_uids(self) -> set[str]:
        return {item["metadata"]["uid"] for item in self.workers() if condition(item, "Ready")["status"] == "True"}

    def machines(self) -> list[Path]:
        """The directories of the machines at the site."""
        return [path for path in self.stack.emulated.glob(f"*{self.site}*/machines/*") if path.is_dir()]

    def adapters(self) -> list[Identity]:
        """The adapter processes that run in machines of the site."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                line = (path / "cmdline").read_bytes().decode(errors="replace")
                identity = Identity.of(int(path.name))
                if "--bootstrap" in line and self.site in line and identity:
                    found.append(identity)
        return found

    async def lose_a_machine(self) -> None:
        """End a machine at the site, behind the operator's back."""
        site = EmulatedSite(SiteConfig(self.site, complete_emulated()))
        try:
            machines = await site.list_owned()
            async for outcome in site.delete([machines[0].id]):
                assert outcome.error is None, outcome.error
        finally:
            await site.aclose()

    def act(self, action: str, name: str, kind: str = "WorkerPool", target: str = "pool", **spec: Any) -> Json:
        body = {"target": {"kind": kind, "name": target}, "action": action, **spec}
        return self.stack.make(names.SERVICE_ACTIONS, self.namespace, name, body)

    def action(self, name: str) -> Json:
        found = self.stack.get(names.SERVICE_ACTIONS, self.namespace, name)
        assert found is not None, f"{name} exists"
        return found

    def finished(self, name: str) -> Json:
        def check() -> Json | None:
            found = self.action(name)
            done = any(condition(found, kind)["status"] == "True" for kind in ("Complete", "Failed"))
            return found if done else None

        try:
            found: Json = wait_until(check)
        except TimeoutError:
            raise AssertionError(json.dumps(self.action(name), indent=1)) from None
        return found


@contextlib.contextmanager
def scene(stack: Stack, **latencies: int) -> Iterator[Scene]:
    """A namespace with the service, and an emulated site with process guests; gone afterwards."""
    stack.tidy()
    made = Scene(stack, unique("scene"), unique("site"))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": made.namespace}}
    assert stack.api.create(namespace).accepted
    interface = load_class("operator_connector:Program", CONNECTOR.parent).interface.to_json()
    files = [{"path": "operator_connector.py", "content": CONNECTOR.read_text()}]
    connector = {"python": {"class": "operator_connector:Program"}, "files": files}
    spec = {"interface": interface, "connector": connector}
    stack.make(names.SIMULATION_SERVICES, made.namespace, SERVICE, spec)
    emulated = {"guests": "process", "latencies": latencies}
    stack.make(names.CLOUD_SITES, "", made.site, {"provider": {"emulated": emulated}, "orphanGraceSeconds": 1})
    try:
        yield made
    finally:
        stack.leave(made)


def condition(item: Json, kind: str) -> Json:
    """A condition; status Unknown when it is not there."""
    conditions = (item.get("status") or {}).get("conditions") or []
    return next((found for found in conditions if found["type"] == kind), {"status": "Unknown", "reason": ""})
