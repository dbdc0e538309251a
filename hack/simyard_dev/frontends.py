"""OCCI frontends in an environment, as processes: under their account, with TLS, and on one shared AMQP queue."""

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
from simyard.build.frontend_account import bound_account
from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.occi_topology import client_user_spec, clients_vhost, request_queue
from simyard_dev.certificates import CertificateAuthority
from simyard_dev.environment import Environment
from simyard_dev.files import write_whole
from simyard_dev.ports import LOOPBACK, Ports
from simyard_dev.processes import Process

SIMYARD = Path(sys.executable).parent / "simyard"
COUNT = 2
NAMESPACE = "default"
USER = "occi-user"
"""A ServiceAccount in that namespace, and the user of the same name at the broker."""
ACCOUNT = "occi-dev"
"""The frontends' ServiceAccount: the operator knows only those that it makes itself."""
TOKEN_HOURS = 24
CERTIFICATE = "frontend"


class Frontends:
    """Frontends for all services of one namespace (it must exist when they start), and one user of them.

    The queue is named after the first one's URL; all of them serve it.
    """

    def __init__(self, environment: Environment, directory: Path, ports: Ports, namespace: str = NAMESPACE) -> None:
        self._environment = environment
        self._namespace = namespace
        self._directory = directory
        self._ports = ports
        self._password_file = directory / f"{USER}.password"
        self.processes = [Process(directory, f"frontend-{number}") for number in range(COUNT)]

    def reserve(self) -> None:
        """Choose the ports; to be called before anything is told where the frontends are."""
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
        """Where they serve HTTPS, without a trailing slash."""
        return [f"https://{LOOPBACK}:{self._ports[process.name]}" for process in self.processes]

    def start(self, authority: CertificateAuthority, kubeconfig: Path) -> None:
        """Start what does not run; ``kubeconfig`` is of their ServiceAccount."""
        if not any(process.is_alive() for process in self.processes):
            authority.issue_server(CERTIFICATE, ["localhost", LOOPBACK])
        keys = authority.files.certificate.parent
        # A developer's shell may have the administrator's access to the broker; frontends have their own in a Secret.
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
        """Wait until all of them serve, over AMQP too (without it a frontend is ready all the same).

        Raises:
            SetupError: one did not become ready; with the end of its log.
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
        """Create the frontends' account, and the user in Kubernetes and at the broker."""
        items = [*bound_account(ACCOUNT, self._namespace, names.SYSTEM_NAMESPACE), *_user(self._namespace)]
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
        async with aclosing(BrokerAdmin(access.in_vhost(clients_vhost(broker.virtual_host)))) as admin:
            await admin.ensure_vhost()
            await admin.ensure_user(client_user_spec(USER, serves=True), self._password_file.read_text())

    def variables(self, authority: CertificateAuthority) -> dict[str, str]:
        """Where they are and as whom to use them, for a shell to source."""
        token = self._environment.control_plane.kubectl(
            "create", "token", USER, f"--namespace={self._namespace}", f"--duration={TOKEN_HOURS}h"
        )
        broker = self._environment.broker
        vhost = clients_vhost(broker.virtual_host)
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
            "OCCI_AMQP_QUEUE": request_queue(self.endpoint),
        }


def _metrics(process: Process) -> str:
    return f"{process.name}-metrics"


def _user(namespace: str) -> list[Json]:
    """A ServiceAccount with what an OCCI client may need, in its namespace alone."""
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
