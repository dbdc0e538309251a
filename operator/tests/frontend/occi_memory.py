# SPDX-License-Identifier: Apache-2.0
"""A backend in memory, requests to the handlers, and a server on loopback."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator, Hashable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from simyard.frontend.backend import Invocation, Precondition, Verb
from simyard.frontend.entities.targets import parse_location
from simyard.frontend.exchange import Identity, OcciRequest, OcciResponse, parse_target
from simyard.frontend.handlers import Handlers
from simyard.frontend.health import Health
from simyard.frontend.http.connection import Limits, Listener
from simyard.frontend.http.transport import HttpFrontend
from simyard.frontend.identity import Authorization, read_token
from simyard.occi.errors import OcciError
from simyard.occi.model import Action, Category, Entity, Link, Mixin, Model, Resource, Value
from simyard.occi.standard import (
    COMPUTE,
    COMPUTE_ACTION_SCHEME,
    INFRASTRUCTURE_SCHEME,
    NETWORK,
    NETWORKINTERFACE,
    OS_TPL,
    STANDARD,
)
from simyard.occi.validation import Checked, Update
from simyard.serving.checks import HealthCheck

BASE = "https://occi.example:8443"
BEAM = Mixin("http://simyard.dev/occi/os_tpl#", "beam", "A beam", "/os_tpl/beam/", depends=(OS_TPL,))
READER = "bob"
"""A user who may read everything and change nothing."""
TOKENS = {"ada-token": "ada", "eve-token": "eve", "net-token": "net"}
RIGHTS: dict[str, frozenset[str] | None] = {
    "ada": None,  # everything
    READER: None,
    "net": frozenset({"/-/", "/network/"}),
    "eve": frozenset(),
}
START = f"{COMPUTE_ACTION_SCHEME}start"

COMPUTE_LINE = f'Category: compute; scheme="{INFRASTRUCTURE_SCHEME}"; class="kind"'
BEAM_LINE = f'Category: beam; scheme="{BEAM.scheme}"; class="mixin"'
START_LINE = f'Category: start; scheme="{START.removesuffix("start")}"; class="action"'
TAG_LINE = 'Category: tag; scheme="http://example.org/tags#"; class="mixin"; location="/tag/"'
NETWORK_LINE = f'Category: network; scheme="{INFRASTRUCTURE_SCHEME}"; class="kind"'
PLAIN = "text/plain; charset=utf-8"


def lines(*items: str) -> str:
    return "\n".join(items) + "\n"


def identity(user: str) -> Identity:
    return Identity(user, "", (), ())


def compute(number: int | str, **attributes: Value) -> Resource:
    return Resource(
        kind=COMPUTE,
        id=f"c{number}",
        path=f"/compute/c{number}",
        mixins=(BEAM.id,),
        attributes={"occi.compute.cores": 2, "occi.compute.state": "inactive", **attributes},
        actions=(START,),
        title=f"Worker {number}",
    )


def network(number: int) -> Resource:
    return Resource(kind=NETWORK, id=f"n{number}", path=f"/network/n{number}", attributes={"occi.network.vlan": number})


@dataclass
class MemoryBackend:
    """A backend in memory; ``changes`` are the changes that it was asked for; ``slow`` is awaited before each one."""

    stored: dict[str, Entity] = field(default_factory=dict)
    version: int = 0
    changes: list[str] = field(default_factory=list)
    asked: list[tuple[str, Verb, str, str]] = field(default_factory=list)
    age: float | None = None
    refused_at: int = -1
    slow: asyncio.Event | None = None
    rendered_entities: int = 0
    result: Mapping[str, Value] | None = None
    failure: Exception | None = None

    def __post_init__(self) -> None:
        self._mixins: tuple[Category, ...] = (BEAM,)
        self._members: dict[str, tuple[str, ...]] = {}
        self._revisions: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._snapshots: dict[str, tuple[str, ...]] = {}
        self._new_model()

    def put(self, *entities: Entity) -> None:
        for entity in entities:
            self.version += 1
            if entity.path not in self.stored:
                self._snapshots.clear()
            self.stored[entity.path] = entity
            self._revisions[entity.path] = self.version

    def remove(self, path: str) -> None:
        self.version += 1
        self._snapshots.clear()
        del self.stored[path], self._revisions[path]

    def _new_model(self) -> None:
        self.version += 1
        self._model = Model((*STANDARD, *self._mixins), self.version)

    def get_model(self) -> Model:
        return self._model

    def get_entity(self, path: str) -> Entity | None:
        self.rendered_entities += 1
        return self.stored.get(path)

    def list_paths(self, location: str) -> tuple[str, ...]:
        if location in self._members:
            return self._members[location]
        if location not in self._snapshots:
            self._snapshots[location] = tuple(path for path in self.stored if path.startswith(location))
        return self._snapshots[location]

    def list_entities(self, paths: Iterable[str]) -> Iterable[Entity]:
        return [self.stored[path] for path in paths if path in self.stored]

    def make_part_key(self, path: str) -> Hashable:
        return self._revisions.get(path)

    def measure_age_seconds(self, path: str) -> float | None:
        return self.age

    def is_permanent(self, path: str) -> bool:
        return False

    @asynccontextmanager
    async def visible(self) -> AsyncIterator[None]:
        yield

    async def find(self, path: str) -> Entity | None:
        await asyncio.sleep(0)
        return self.stored.get(path)

    async def may(self, identity: Identity, verb: Verb, path: str, action: str = "") -> None:
        self.asked.append((identity.user, verb, path, action))
        rights = RIGHTS[identity.user]
        changes = verb not in (Verb.GET, Verb.LIST)
        if (rights is not None and parse_location(path) not in rights) or (changes and identity.user == READER):
            raise OcciError(403, f"{identity.user} may not {verb} {path}")

    async def _change(self, what: str) -> None:
        if self.slow is not None:
            await self.slow.wait()
        if self.failure is not None:
            raise self.failure
        if len(self.changes) == self.refused_at:
            raise OcciError(409, "refused on purpose")
        self.changes.append(what)

    async def create(self, identity: Identity, draft: Checked, *, key: str = "", exact: bool = False) -> Entity:
        await self._change(f"create {draft.kind.term} {key}".strip())
        new = draft.id or f"new{next(self._numbers)}"
        path = f"{draft.kind.location}{new}"
        mixins = tuple(mixin.id for mixin in draft.mixins)
        links = tuple(
            Link(link.kind.id, f"{new}-{place}", f"{link.kind.location}{new}-{place}", path, link.target)
            for place, link in enumerate(draft.links)
        )
        entity: Entity
        if draft.kind.id == NETWORKINTERFACE:
            entity = Link(draft.kind.id, new, path, draft.source, draft.target, mixins, draft.attributes)
        else:
            entity = Resource(draft.kind.id, new, path, mixins, draft.attributes, (), links, draft.title, draft.summary)
        self.put(entity, *links)
        return entity

    async def update(
        self, identity: Identity, entity: Entity, update: Update, *, replace: bool, check: Precondition | None = None
    ) -> Entity:
        await self._change(f"{'replace' if replace else 'update'} {entity.path}")
        attributes = {k: v for k, v in entity.attributes.items() if k not in update.removed} | dict(update.attributes)
        title = entity.title if update.title is None else update.title
        changed = dataclasses.replace(entity, attributes=attributes, title=title)
        self.put(changed)
        return changed

    def was_deleted(self, path: str, key: str) -> bool:
        return False

    async def delete(
        self, identity: Identity, entities: Sequence[Entity], *, key: str = "", check: Precondition | None = None
    ) -> None:
        await self._change(f"delete {' '.join(entity.path for entity in entities)}".strip())
        for entity in entities:
            self.remove(entity.path)

    async def act(self, entities: Sequence[Entity], invocation: Invocation) -> Mapping[str, Value] | None:
        paths = " ".join(entity.path for entity in entities)
        asked = f"{invocation.action.term} {paths} {dict(invocation.attributes)}"
        await self._change(f"{asked}{' wait' if invocation.wait else ''}")
        return self.result

    async def refresh(self, entities: Sequence[Entity], seconds: float = 1.0) -> None:
        self.changes.append(f"refresh {len(entities)}")
        for entity in entities:
            self.put(dataclasses.replace(entity, attributes={**entity.attributes, "occi.compute.hostname": "fresh"}))

    def is_due(self, path: str) -> bool:
        return False

    async def pull(self, path: str, seconds: float = 1.0) -> None:
        raise AssertionError("nothing is due")

    async def define(self, identity: Identity, definitions: Sequence[Mixin | Action]) -> None:
        await self._change(f"define {' '.join(item.term for item in definitions)}")
        ids = {item.id for item in definitions}
        self._mixins = (*(item for item in self._mixins if item.id not in ids), *definitions)
        self._members |= {item.location: () for item in definitions if isinstance(item, Mixin)}
        self._new_model()

    async def undefine(self, identity: Identity, ids: Sequence[str]) -> None:
        await self._change(f"undefine {' '.join(ids)}")
        self._mixins = tuple(item for item in self._mixins if item.id not in ids)
        self._new_model()

    async def associate(self, identity: Identity, mixin: Mixin, paths: Sequence[str], *, replace: bool) -> None:
        _refuse_providers(mixin)
        await self._change(f"{'set' if replace else 'associate'} {mixin.term} {' '.join(paths)}".strip())
        before = () if replace else self._members.get(mixin.location, ())
        self._members[mixin.location] = tuple(dict.fromkeys((*before, *paths)))

    async def dissociate(self, identity: Identity, mixin: Mixin, paths: Sequence[str]) -> None:
        _refuse_providers(mixin)
        await self._change(f"dissociate {mixin.term} {' '.join(paths)}".strip())
        self._members[mixin.location] = tuple(p for p in self._members[mixin.location] if p not in paths)


def _refuse_providers(mixin: Mixin) -> None:
    if not mixin.user:
        raise OcciError(403, f"{mixin.id} is the provider's")


class Caller:
    """A user of the handlers."""

    def __init__(self, backend: MemoryBackend, user: str = "ada", handlers: Handlers | None = None) -> None:
        self.backend = backend
        self.handlers = handlers or Handlers(backend)
        self.user = user

    def as_user(self, user: str) -> Caller:
        """Return another user of the same frontend."""
        return Caller(self.backend, user, self.handlers)

    async def __call__(
        self, method: str, target: str, body: str | bytes = b"", *, key: str = "", **headers: str
    ) -> OcciResponse:
        """Send a request; header names have ``_`` for ``-``."""
        path, query = parse_target(target, "target")
        sent = [(name.lower().replace("_", "-"), value) for name, value in headers.items()]
        data = body.encode() if isinstance(body, str) else body
        return await self.handlers.handle(OcciRequest(method, path, query, sent, data, identity(self.user), BASE, key))

    async def text(self, method: str, target: str, body: str | bytes = b"", **headers: str) -> str:
        response = await self(method, target, body, **headers)
        assert response.status in (200, 201), response
        return response.body.decode()


async def identify(authorization: Authorization) -> Identity:
    user = TOKENS.get(read_token(authorization.text))
    if user is None:
        raise OcciError(401, "the token is not valid")
    return identity(user)


@dataclass
class Served:
    """A frontend on loopback, without TLS."""

    port: int
    backend: MemoryBackend
    health: Health
    runner: web.ServerRunner
    server: Listener

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def raw(self, data: bytes, *, eof: bool = False) -> bytes:
        """Send bytes and read until the server closes the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.timeout(240):
                writer.write(data)
                await writer.drain()
                if eof:
                    writer.write_eof()
                return await reader.read()
        finally:
            writer.close()

    async def request(
        self, method: str, target: str, *headers: str, body: bytes = b"", token: str = "ada-token"
    ) -> tuple[int, str, str]:
        """Send one request on a connection of its own, and return status, head and body."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self.host}", "Connection: close", *headers]
        if token:
            lines.append(f"Authorization: Bearer {token}")
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return parts(await self.raw("\r\n".join([*lines, "", ""]).encode() + body))


def parts(answer: bytes) -> tuple[int, str, str]:
    """Return status, head and body of a response."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode(), body.decode()


@asynccontextmanager
async def served(
    backend: MemoryBackend, *, limits: Limits | None = None, request_seconds: float = 20.0, **options: object
) -> AsyncIterator[Served]:
    health = Health()
    health.started = True
    health.checks.append(lambda: HealthCheck("objects", True, "in memory"))
    limits = limits or Limits(linger_seconds=0.1)
    handlers = Handlers(backend, request_seconds=request_seconds)
    frontend = HttpFrontend(handlers, identify, health, limits=limits, **options)  # type: ignore[arg-type]
    server = Listener(frontend.handle, limits)
    runner = web.ServerRunner(server, shutdown_timeout=10)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        yield Served(port, backend, health, runner, server)
    finally:
        await runner.cleanup()
