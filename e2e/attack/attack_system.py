# SPDX-License-Identifier: Apache-2.0
"""Run the system under attack: every process is real, and everything is counted from outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from kube_api import Api
from simyard.api import names
from simyard.api.base import Json
from simyard_adapter.python_backend import load_class
from simyard_dev.environment import Environment
from simyard_dev.platform import Platform
from simyard_dev.processes import Identity
from simyard_sites.kubernetes.resource import Resource

PROGRAM = Path(__file__).with_name("attack_program.py")
SERVICE, SITE, POOL = "program", "attacked", "pool"
SITE_SPEC = {"provider": {"emulated": {"guests": "process"}}, "orphanGraceSeconds": 1}
PATIENCE_SECONDS = 180.0


def wait_until(check: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until the check returns a true value."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:.0f} s: {what}")
        time.sleep(0.2)


@dataclass
class Kind:
    """A kind of process that can be hit: its name, and the identities of its running processes."""

    name: str
    alive: Callable[[], list[Identity]]


class System:
    """A stack as `make dev-up` starts it, with one pool per tenant (a namespace)."""

    def __init__(self, environment: Environment, platform: Platform, tenants: dict[str, int], ledger: Path) -> None:
        self._environment = environment
        self._platform = platform
        self.tenants = tenants
        self.ledger = ledger
        self.api = Api(environment.control_plane.kubeconfig)

    def another(self) -> System:
        """Return the same system with a connection of its own, for another thread."""
        return System(self._environment, self._platform, self.tenants, self.ledger)

    # Requests.

    def publish(self) -> None:
        """Create the site, and for each tenant a namespace, the service and a pool; wait until all are Available."""
        self._create(names.CLOUD_SITES, "", SITE, SITE_SPEC)
        interface = load_class("attack_program:Program", PROGRAM.parent).interface.to_json()
        files = [{"path": PROGRAM.name, "content": PROGRAM.read_text()}]
        service = {
            "interface": interface,
            "connector": {"python": {"class": "attack_program:Program"}, "files": files},
        }
        for tenant, replicas in self.tenants.items():
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant}}
            assert self.api.create(namespace).accepted
            self._create(names.SIMULATION_SERVICES, tenant, SERVICE, service)
            pool = {"serviceRef": {"name": SERVICE}, "replicas": replicas, "placement": {"sites": [SITE]}}
            self._create(names.WORKER_POOLS, tenant, POOL, pool)
        wait_until(self.all_ready, "not all pools are ready")

    def act(self, tenant: str, name: str, action: str) -> None:
        """Create a ServiceAction; retry under the same name while the API server is away."""
        body = _manifest(names.SERVICE_ACTIONS, tenant, name, {
            "target": {"kind": "WorkerPool", "name": POOL}, "action": action,
            "parameters": {"ledger": str(self.ledger), "key": f"{tenant}/{name}"},
            "ttlSecondsAfterFinished": 86_400,
        })  # fmt: skip

        def created() -> bool:
            with contextlib.suppress(OSError):
                answer = self.api.create(body)
                return answer.accepted or answer.status == 409
            return False

        wait_until(created, f"{name} cannot be created")

    # Observations.

    def list(self, kind: Resource, tenant: str = "") -> list[Json]:
        """Return the objects of a kind, of one tenant or of all."""
        place = f"/namespaces/{tenant}" if tenant else ""
        return list(self.api.request("GET", f"/apis/{kind.api_version}{place}/{kind.plural}").body["items"])

    def all_ready(self) -> bool:
        """Return whether each pool has exactly its desired number of ready workers."""
        with contextlib.suppress(OSError, KeyError):
            pools = {item["metadata"]["namespace"]: item for item in self.list(names.WORKER_POOLS)}
            return all(
                (status.get("replicas", 0), status.get("readyReplicas", 0)) == (count, count)
                for tenant, count in self.tenants.items()
                if (status := pools[tenant].get("status") or {}) is not None
            )
        return False

    def runs(self) -> Counter[str]:
        """Return the number of runs of each action, by the ledger."""
        return Counter(self.ledger.read_text().splitlines() if self.ledger.exists() else [])

    def machines(self) -> set[str]:
        """Return the names of the machines at the site."""
        pattern = f"*{SITE}*/machines/*/bootstrap.json"
        return {json.loads(path.read_text())["workerUid"] for path in self._platform.emulated.glob(pattern)}

    def bootstraps(self, tenant: str) -> list[Path]:
        """Return the bootstrap documents of a tenant's machines."""
        uids = {item["metadata"]["uid"] for item in self.list(names.WORKERS, tenant)}
        found = self._platform.emulated.glob(f"*{SITE}*/machines/*/bootstrap.json")
        return [path for path in found if json.loads(path.read_text())["workerUid"] in uids]

    def adapters(self) -> list[Identity]:
        """Return the adapters' processes."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                line = (path / "cmdline").read_bytes().decode(errors="replace")
                identity = Identity.of(int(path.name))
                if "--bootstrap" in line and str(self._platform.emulated) in line and identity:
                    found.append(identity)
        return found

    def broker_names(self, kind: str) -> set[str]:
        """Return the names of all queues or users at the broker."""
        broker = self._environment.broker
        request = urllib.request.Request(
            f"{broker.management_url}/api/{kind}?columns=name",
            headers={"Authorization": aiohttp.encode_basic_auth(broker.user, broker.password)},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return {item["name"] for item in json.load(answer)}

    # Damage and repair.

    def kinds(self) -> list[Kind]:
        """Return the kinds of processes that can be hit."""
        platform, control_plane = self._platform, self._environment.control_plane
        processes = [platform.operator, platform.apiserver, *platform.frontends.processes, *control_plane.processes]
        kinds = [Kind(item.name, lambda item=item: [item.identity] if item.identity else []) for item in processes]
        broker = getattr(self._environment.broker, "processes", ())[-1:]  # the server; epmd has no state to lose
        kinds += [Kind("rabbitmq", lambda item=item: [item.identity] if item.identity else []) for item in broker]
        return [*kinds, Kind("adapter", self.adapters), Kind("cloud", self._clouds)]

    def repair(self) -> None:
        """Start the processes that were killed, as Kubernetes would."""
        own = ("adapter", "cloud")  # the operator replaces and starts these
        if all(kind.alive() for kind in self.kinds() if kind.name not in own):
            return
        self._environment.up()
        self._platform.up()

    def _clouds(self) -> list[Identity]:
        found = []
        for file in self._platform.emulated.glob("*/pid"):
            with contextlib.suppress(OSError, ValueError):
                identity = Identity.of(int(file.read_text()))
                found += [identity] if identity else []
        return found

    def _create(self, kind: Resource, namespace: str, name: str, spec: Json) -> None:
        answer = self.api.create(_manifest(kind, namespace, name, spec))
        assert answer.accepted, answer.message


def hit(identity: Identity, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(identity.pid, number)


def _manifest(kind: Resource, namespace: str, name: str, spec: Json) -> Json:
    metadata = {"name": name, **({"namespace": namespace} if kind.namespaced else {})}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
