# SPDX-License-Identifier: Apache-2.0
"""``simyard frontend`` as a process: its account, TLS, tokens that kube-apiserver checks, rights, and its end."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import ssl
import sys
import urllib.request
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from frontend_objects import INTERFACE

from simyard.api import names
from simyard.manifests import install
from simyard.manifests.frontend_account import build_bound_account
from simyard_dev.certificates import CertificateAuthority
from simyard_dev.controlplane import ControlPlane
from simyard_dev.ports import LOOPBACK, Ports
from simyard_dev.processes import Process

pytestmark = pytest.mark.xdist_group("frontend-role")

SIMYARD = Path(sys.executable).parent / "simyard"
READY_SECONDS = 240.0


@dataclass
class Frontend:
    """A frontend, and the namespace that it serves."""

    control_plane: ControlPlane
    directory: Path
    namespace: str
    ports: Ports
    authority: CertificateAuthority
    process: Process

    @property
    def url(self) -> str:
        return f"https://localhost:{self.ports['frontend']}"

    def token(self, account: str) -> str:
        return self.control_plane.kubectl("create", "token", account, f"--namespace={self.namespace}").strip()

    def metrics_port(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self.ports['metrics']}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def start(self) -> None:
        keys = self.authority.files.certificate.parent
        self.process.start(
            [
                SIMYARD,
                "frontend",
                f"--kubeconfig={self.directory / 'frontend.kubeconfig'}",
                f"--namespace={self.namespace}",
                f"--bind={LOOPBACK}",
                f"--port={self.ports['frontend']}",
                f"--metrics-port={self.ports['metrics']}",
                f"--tls-cert={keys / 'serving.crt'}",
                f"--tls-key={keys / 'serving.key'}",
                "--drain-seconds=0",
            ],
            {name: value for name, value in os.environ.items() if not name.startswith("AMQP_")},
        )
        self.process.wait_ready(self._is_ready, READY_SECONDS)

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            return "ok" in self.metrics_port("/readyz")
        return False


@pytest.fixture(scope="module")
def frontend(simyard_directory: Path, control_plane: ControlPlane) -> Iterator[Frontend]:
    directory = simyard_directory / "frontend-role"
    directory.mkdir(exist_ok=True)
    namespace = f"frontend-{uuid.uuid4().hex[:8]}"
    objects = install.build_objects(names.SYSTEM_NAMESPACE)
    apply(control_plane, *objects)
    crds = [item["metadata"]["name"] for item in objects if item["kind"] == "CustomResourceDefinition"]
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=240s", "crd", *crds)
    apply(control_plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    apply(control_plane, beam(namespace))
    for account in ("ada", "eve"):
        control_plane.kubectl("create", "serviceaccount", account, f"--namespace={namespace}")
    control_plane.kubectl(
        "create", "role", "reader", f"--namespace={namespace}", "--verb=get,list",
        "--resource=workers.simyard.dev,workerpools.simyard.dev,simulationservices.simyard.dev,occilinks.simyard.dev",
    )  # fmt: skip
    control_plane.kubectl(
        "create", "role", "tagger", f"--namespace={namespace}", "--verb=create,patch,delete",
        "--resource=occimixins.simyard.dev",
    )  # fmt: skip
    control_plane.kubectl(
        "create", "rolebinding", "ada-tagger", f"--namespace={namespace}", "--role=tagger",
        f"--serviceaccount={namespace}:ada",
    )  # fmt: skip
    control_plane.kubectl(
        "create", "rolebinding", "ada", f"--namespace={namespace}", "--role=reader", f"--serviceaccount={namespace}:ada"
    )
    ports = Ports(directory)
    ports.reserve("frontend")
    ports.reserve("metrics")
    authority = CertificateAuthority(directory / "keys", "serving-ca")
    authority.issue_server("serving", ["localhost", LOOPBACK])
    account = f"occi-{namespace}"
    apply(control_plane, *build_bound_account(account, namespace, names.SYSTEM_NAMESPACE))
    control_plane.write_service_account_kubeconfig(directory / "frontend.kubeconfig", names.SYSTEM_NAMESPACE, account)
    frontend = Frontend(control_plane, directory, namespace, ports, authority, Process(directory, "frontend"))
    frontend.start()
    yield frontend
    frontend.process.stop(grace_seconds=10)


@pytest.fixture
async def session(frontend: Frontend) -> AsyncIterator[aiohttp.ClientSession]:
    context = ssl.create_default_context(cafile=str(frontend.authority.files.certificate))
    async with aiohttp.ClientSession(
        frontend.url, connector=aiohttp.TCPConnector(ssl=context), timeout=aiohttp.ClientTimeout(total=30)
    ) as session:
        yield session


def apply(control_plane: ControlPlane, *objects: object) -> None:
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)


def beam(namespace: str) -> object:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "SimulationService",
        "metadata": {"name": "beam", "namespace": namespace},
        "spec": {"interface": INTERFACE, "connector": {"python": {"class": "m:C"}}},
    }


async def status_of(session: aiohttp.ClientSession, authorization: str, path: str = "/-/", method: str = "GET") -> int:
    headers = {"Authorization": authorization} if authorization else {}
    async with session.request(method, path, headers=headers) as answer:
        return answer.status


async def test_a_service_is_a_template_and_an_application_for_whoever_may_see_it(
    frontend: Frontend, session: aiohttp.ClientSession
) -> None:
    headers = {"Authorization": f"Bearer {frontend.token('ada')}"}
    async with session.get("/-/", headers=headers) as answer:
        model = await answer.text()
        assert answer.status == 200 and "OCCI/1.2" in answer.headers["Server"]
    assert 'Category: beam; scheme="http://simyard.dev/occi/os_tpl#"; class="mixin"' in model
    async with session.get("/application/", headers=headers | {"Accept": "text/uri-list"}) as answer:
        (uri,) = (await answer.text()).split()
    assert uri.startswith(f"{frontend.url}/application/")
    async with session.get(uri.removeprefix(frontend.url), headers=headers) as answer:
        assert answer.status == 200 and 'occi.app.name="beam"' in await answer.text()


async def test_kubernetes_says_whose_token_it_is_and_what_they_may(
    frontend: Frontend, session: aiohttp.ClientSession
) -> None:
    ada, eve = frontend.token("ada"), frontend.token("eve")
    password = "Basic " + base64.b64encode(f"anybody:{ada}".encode()).decode()
    assert await status_of(session, f"Bearer {ada}") == 200
    assert await status_of(session, password) == 200
    assert await status_of(session, f"Bearer {ada[:-4]}AAAA") == 401
    assert await status_of(session, "") == 401
    for path in ("/-/", "/compute/", "/application/", "/compute/none", "/"):
        assert await status_of(session, f"Bearer {eve}", path) == 403, path
    assert await status_of(session, f"Bearer {ada}", "/compute/", "DELETE") == 403
    assert await status_of(session, f"Bearer {ada}", "/compute/none") == 404


async def test_probes_and_figures_are_shown(frontend: Frontend, session: aiohttp.ClientSession) -> None:
    token = frontend.token("ada")
    assert await status_of(session, f"Bearer {token}", "/compute/") == 200
    assert await status_of(session, "", "/readyz") == 200
    figures = frontend.metrics_port("/metrics")
    assert 'simyard_occi_requests_total{code="200",method="GET",transport="http"}' in figures
    assert 'simyard_occi_request_duration_seconds_bucket{code="200",le="+Inf",method="GET"' in figures
    assert "simyard_occi_refresh_seconds_sum" in figures and token not in figures
    log = frontend.process.log_file.read_text()
    assert token not in log and "Traceback" not in log


async def test_it_ends_by_itself_and_starts_again(frontend: Frontend) -> None:
    running = frontend.process.identity
    assert running is not None
    os.kill(running.pid, signal.SIGTERM)
    assert running.wait_gone(20)
    assert "Traceback" not in frontend.process.log_file.read_text()
    frontend.process.kill()
    frontend.start()
