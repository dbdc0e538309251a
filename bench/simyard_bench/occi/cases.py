# SPDX-License-Identifier: Apache-2.0
"""Build the requests of the cases from the model and the listing that a frontend returns."""

from __future__ import annotations

import http.client
import re
import shlex
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from simyard_bench.occi.load import Request
from simyard_bench.world import World
from simyard_dev.errors import SetupError

LIST = Request("/compute/", headers={"Accept": "text/uri-list"})
LIST_TEXT = Request("/compute/?full=true", headers={"Accept": "text/plain"})
MODEL = Request("/-/", headers={"Accept": "text/plain"})
PAGE_MEMBERS = 100
ACTION = "run"
_ACTION_LINK = re.compile(rf'<(/compute/\S+)\?action={ACTION}>; rel="(\S+#){ACTION}"')
_REQUEST_SECONDS = 60
_APART = frozenset({"date", "content-length", "connection"})
"""The headers whose values differ in each response."""


@dataclass(frozen=True)
class Answer:
    """A response with status 200."""

    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True)
class Access:
    """The addresses of the frontends and the credentials of a user, from the `env` file of the environment."""

    urls: tuple[str, ...]
    ca_file: str
    token: str
    amqp_url: str
    amqp_ca_file: str
    amqp_user: str
    amqp_queue: str

    @classmethod
    def of(cls, world: World) -> Self:
        """Return the access to the frontends of an environment."""
        words = shlex.split((world.environment.directory / "env").read_text())
        known = dict(word.split("=", 1) for word in words if word != "export")
        return cls(
            urls=tuple(known["OCCI_URLS"].split()),
            ca_file=known["OCCI_CA_FILE"],
            token=known["OCCI_TOKEN"],
            amqp_url=known.get("OCCI_AMQP_TLS_URL") or known["OCCI_AMQP_URL"],
            amqp_ca_file=known["AMQP_CA_FILE"] if "OCCI_AMQP_TLS_URL" in known else "",
            amqp_user=known["OCCI_AMQP_USER"],
            amqp_queue=known["OCCI_AMQP_QUEUE"],
        )

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        return {"Authorization": f"Bearer {self.token}"}


class Asking:
    """A connection for single requests, which are not measured."""

    def __init__(self, access: Access) -> None:
        self._access = access
        url = urlsplit(access.urls[0])
        context = ssl.create_default_context(cafile=access.ca_file)
        self._connection = http.client.HTTPSConnection(
            str(url.hostname), url.port, context=context, timeout=_REQUEST_SECONDS
        )

    def ask(self, request: Request) -> Answer:
        """Send a request and return the answer.

        Raises:
            SetupError: the frontend refused the request.
        """
        headers = {**self._access.headers, **request.headers}
        try:
            self._connection.request(request.method, request.target, request.body or None, headers)
            response = self._connection.getresponse()
        except (http.client.HTTPException, OSError):  # the frontend closes idle connections, or has been replaced
            self._connection.close()
            self._connection.request(request.method, request.target, request.body or None, headers)
            response = self._connection.getresponse()
        body = response.read()
        if response.status != http.client.OK:
            raise SetupError(f"{request.method} {request.target} was refused with {response.status}: {body[:500]!r}")
        return Answer(tuple(item for item in response.getheaders() if item[0].lower() not in _APART), body)

    def computes(self) -> list[str]:
        """Return the paths of all computes."""
        return [urlsplit(line).path for line in self.ask(LIST).body.decode().split()]

    def is_ready(self, path: str) -> bool:
        """Return true if the service of a compute has registered: only then does the compute offer the action."""
        return _ACTION_LINK.search(self.ask(compute(path)).body.decode()) is not None

    def wait_ready(self, count: int, seconds: float) -> list[str]:
        """Wait until ``count`` computes exist and the newest ones have registered services; return the paths of all.

        Raises:
            SetupError: the deadline passed.
        """
        deadline = time.monotonic() + seconds
        paths = self.computes()
        while len(paths) != count or not all(map(self.is_ready, paths[-PAGE_MEMBERS:])):
            if time.monotonic() > deadline:
                raise SetupError(
                    f"after {seconds:.0f} s the frontend shows {len(paths)} of {count} computes, or some are not ready"
                )
            time.sleep(0.1)
            paths = self.computes()
        return paths

    def actions(self, paths: Sequence[str]) -> tuple[Request, ...]:
        """Return an action on each of the computes."""
        found = _ACTION_LINK.search(self.ask(compute(paths[0])).body.decode())
        assert found is not None, "the compute is ready"
        category = f'Category: {ACTION}; scheme="{found[2]}"; class="action"'
        headers = {"Content-Type": "text/plain"}
        return tuple(Request(f"{path}?action={ACTION}", "POST", headers, category) for path in paths)


def compute(path: str) -> Request:
    """Return the GET request of one compute."""
    return Request(path, headers={"Accept": "text/plain"})


def mixed(paths: Sequence[str]) -> tuple[Request, ...]:
    """Return a mix of reads in which each compute occurs once."""
    pages = max(1, len(paths) // PAGE_MEMBERS)
    requests = []
    for number, path in enumerate(paths):
        requests.append(compute(path))
        if number % 7 == 3:
            requests += [MODEL, MODEL]
        elif number % 7 == 6:
            page = number // 7 % pages + 1
            requests.append(Request(f"/compute/?page={page}&number={PAGE_MEMBERS}", headers=LIST.headers))
    return tuple(requests)
