# SPDX-License-Identifier: Apache-2.0
"""Run OCCI frontends in an environment: processes with their own account, TLS, and one shared AMQP queue."""

import asyncio
import contextlib
import json
import os
import secrets
import sys
import urllib.request
from contextlib import aclosing
from functools import partial
from pathlib import Path
from urllib.parse import quote

from simyard.api import names
from simyard.api.base import Json
from simyard.manifests.frontend_account import build_bound_account
from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.occi_topology import build_client_user_spec, name_clients_vhost, name_request_queue
from simyard_dev.certificates import CertificateAuthority
from simyard_dev.environment import Environment
from simyard_dev.files import write_whole
from simyard_dev.ports import LOOPBACK, Ports
from simyard_dev.processes import Process

SIMYARD = Path(sys.executable).parent / "simyard"
COUNT = 2
NAMESPACE = "default"
USER = "occi-user"
"""Name of a ServiceAccount in the namespace of the frontends, and of its user at the broker."""
ACCOUNT = "occi-dev"
"""ServiceAccount of these frontends; the operator manages only accounts that it created itself."""
TOKEN_HOURS = 24
CERTIFICATE = "frontend"


class Frontends:
    """Frontends for all services of one namespace, and one user of them. The namespace must exist at their start.

    The shared queue is named after the URL of the first frontend.
    """

    def __init__(self, environment: Environment, directory: Path, ports: Ports, namespace: str = NAMESPACE) -> None:
        self._environment = environment
        self._namespace = namespace
        self._directory = directory
        self._ports = ports
        self._password_file = directory / f"{USER}.password"
        self.processes = [Process(directory, f"frontend-{number}") for number in range(COUNT)]

    def reserve(self) -> None:
        """Choose the ports. Call this before another process gets the addresses of the frontends."""
        for process in self.processes:
            if not process.is_alive():
                self._ports.reserve(process.name)
                self._ports.reserve(_metrics(process))

    @property
    def endpoint(self) -> str:
        """The URL after which the shared queue is named."""
        return f"{self.urls[0]}/"

    @property
    def urls(self) -> list[str]:
        """The URLs of the HTTPS servers, without a trailing slash."""
        return [f"https://{LOOPBACK}:{self._ports[process.name]}" for process in self.processes]

    def start(self, authority: CertificateAuthority, kubeconfig: Path) -> None:
        """Start the frontends that do not run; ``kubeconfig`` belongs to their ServiceAccount."""
        if not any(process.is_alive() for process in self.processes):
            authority.issue_server(CERTIFICATE, ["localhost", LOOPBACK])
        keys = authority.files.certificate.parent
        # A developer's shell may hold the broker's administrator; frontends read their own credentials from a Secret.
        variables = {name: value for name, value in os.environ.items() if not name.startswith("AMQP_")}
        for process, url in zip(self.processes, self.urls, strict=True):
            command = [
                "frontend",
                f"--kubeconfig={kubeconfig}",
                f"--namespace={self._namespace}",
                f"--endpoint={url}/",
                f"--amqp-endpoint={self.endpoint}",
                *(f"--other-endpoint={other}/" for other in self.urls if other != url),
                "--cloud4e",
                f"--bind={LOOPBACK}",
                f"--port={self._ports[process.name]}",
                f"--metrics-port={self._ports[_metrics(process)]}",
                f"--tls-cert={keys / f'{CERTIFICATE}.crt'}",
                f"--tls-key={keys / f'{CERTIFICATE}.key'}",
            ]
            process.start([SIMYARD, *command], variables)

    def wait_ready(self, deadline_seconds: float) -> None:
        """Wait until all frontends are ready and serve over AMQP too, which their readiness does not include.

        Raises:
            SetupError: a frontend did not become ready; the message contains the end of its log.
        """
        for process in self.processes:
            process.wait_ready(partial(self._serves, process), deadline_seconds)

    def _serves(self, process: Process) -> bool:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://{LOOPBACK}:{self._ports[_metrics(process)]}/readyz", timeout=5) as answer,
        ):
            return b"amqp: serves" in answer.read()
        return False

    def make_accounts(self) -> None:
        """Create the ServiceAccount of the frontends, and the user in Kubernetes and at the broker."""
        items = [*build_bound_account(ACCOUNT, self._namespace, names.SYSTEM_NAMESPACE), *_user(self._namespace)]
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        self._environment.control_plane.kubectl(
            "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest
        )
        if not self._password_file.exists():
            write_whole(self._password_file, secrets.token_urlsafe(24), private=True)
        asyncio.run(self._make_broker_user())

    async def _make_broker_user(self) -> None:
        broker = self._environment.broker
        access = BrokerAccess.from_url(broker.tls_url or broker.url, broker.management_url or "", broker.ca_file)
        async with aclosing(BrokerAdmin(access.enter_vhost(name_clients_vhost(broker.virtual_host)))) as admin:
            await admin.ensure_vhost()
            await admin.ensure_user(build_client_user_spec(USER, serves=True), self._password_file.read_text())

    def make_variables(self, authority: CertificateAuthority) -> dict[str, str]:
        """Return shell variables with the addresses of the frontends and the user's credentials."""
        token = self._environment.control_plane.kubectl(
            "create", "token", USER, f"--namespace={self._namespace}", f"--duration={TOKEN_HOURS}h"
        )
        broker = self._environment.broker
        vhost = name_clients_vhost(broker.virtual_host)
        password = self._password_file.read_text()

        def amqp(url: str | None) -> str:
            if url is None:
                return ""
            scheme, _, rest = url.partition("://")
            host = rest.rpartition("@")[2].partition("/")[0]
            return f"{scheme}://{USER}:{quote(password, safe='')}@{host}/{quote(vhost, safe='')}"

        return {
            "OCCI_URL": self.urls[0],
            "OCCI_URLS": " ".join(self.urls),
            "OCCI_CA_FILE": str(authority.files.certificate),
            "OCCI_TOKEN": token.strip(),
            "OCCI_AMQP_URL": amqp(broker.url),
            "OCCI_AMQP_TLS_URL": amqp(broker.tls_url),
            "OCCI_AMQP_VHOST": vhost,
            "OCCI_AMQP_USER": USER,
            "OCCI_AMQP_PASSWORD": password,
            "OCCI_AMQP_QUEUE": name_request_queue(self.endpoint),
        }


def _metrics(process: Process) -> str:
    return f"{process.name}-metrics"


def _user(namespace: str) -> list[Json]:
    """Return the manifests of a ServiceAccount with the rights of an OCCI client in its namespace."""
    rbac = "rbac.authorization.k8s.io"
    occi = [names.OCCI_MIXINS.plural, names.OCCI_LINKS.plural]
    writable = [names.WORKERS.plural, names.WORKER_POOLS.plural, *occi]
    meta = {"name": USER, "namespace": namespace}
    every = ["get", "list", "watch"]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": [
                {"apiGroups": [names.GROUP], "resources": ["*"], "verbs": every},
                {
                    "apiGroups": [names.GROUP],
                    "resources": writable,
                    "verbs": ["create", "update", "patch", "delete", "deletecollection"],
                },
                {
                    "apiGroups": [names.SUBRESOURCES_GROUP],
                    "resources": ["*"],
                    "verbs": [*every, "create", "update", "patch"],
                },
            ],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": USER},
            "subjects": [{"kind": "ServiceAccount", "name": USER, "namespace": namespace}],
        },
    ]
