"""Users, permissions, exchanges and queues at the broker, made and removed idempotently.

Users go through the management API, queues through AMQP: sixteen channels that do not wait for answers declare 1.5
times as many per second as sixteen HTTP connections, at a sixth of the CPU (measured on RabbitMQ 3.10).
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import orjson
from aiormq.abc import AbstractChannel, AbstractConnection

from simyard.messaging.access import BrokerAccess
from simyard.messaging.connection import open_connection, open_link, translated
from simyard.messaging.consumers import Consumer
from simyard.messaging.errors import BrokerRefusedError, BrokerUnavailableError
from simyard.messaging.topology import (
    ExchangeSpec,
    PlatformSpec,
    PolicySpec,
    QueueSpec,
    UserLimits,
    UserSpec,
    platform_specs,
)
from simyard_adapter.limits import MAX_BROKER_MESSAGE_BYTES

LISTING_SECONDS = 30.0
SILENT_SECONDS = 10.0
CHANGE_SECONDS = 5.0
CONNECT_SECONDS = 2.0
ATTEMPTS = 3
"""So often a call is made that gets no answer: behind a load balancer, the next one reaches another node."""
IDLE_SECONDS = 2.0
"""After so long without use a connection is not used again: its node may be away."""
BULK_SECONDS = 120.0
HTTP_CONNECTIONS = 8
PAGE = 500
"""The most that the broker gives at a time."""
CHANNELS = 16
IDLE_CONNECTIONS = 4
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue as the management API sees it, up to 10 s late; None is unknown, not 0. ``ready``: not yet delivered."""

    consumers: int | None
    messages: int | None
    ready: int | None


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node of the broker. While one is ``short_of`` memory or disk, no client of any node may publish."""

    running: bool
    partitioned: bool = False
    short_of: tuple[str, ...] = ()


_ALARMS = {"mem_alarm": "memory", "disk_free_alarm": "disk space"}


class _Line:
    """A connection with channels that are kept."""

    def __init__(self, connection: AbstractConnection, stack: AsyncExitStack) -> None:
        self.connection = connection
        self._stack = stack
        self._channels: list[AbstractChannel] = []

    @classmethod
    async def open(cls, access: BrokerAccess) -> _Line:
        stack = AsyncExitStack()
        return cls(await stack.enter_async_context(open_connection(access, "simyard admin")), stack)

    async def channels(self, count: int) -> list[AbstractChannel]:
        while len(self._channels) < count:
            self._channels.append(await self.connection.channel(publisher_confirms=False))
        return self._channels[:count]

    async def aclose(self) -> None:
        await self._stack.aclose()


class BrokerAdmin:
    """Needs a user with the tag ``administrator`` and all permissions on the virtual host.

    Every call may be repeated, has a deadline, and raises :class:`~simyard.messaging.errors.BrokerUnavailableError` or
    :class:`~simyard.messaging.errors.BrokerRefusedError`.
    """

    def __init__(self, access: BrokerAccess) -> None:
        self._access = access
        self._vhost = quote(access.vhost, safe="")
        self._session: aiohttp.ClientSession | None = None
        self._idle: list[_Line] = []

    async def ensure_platform(self, platform: PlatformSpec | None = None) -> None:
        """Make the exchanges and queues that exist once; those of the installation when it is None."""
        platform = platform or platform_specs()
        await self._pipelined(platform.exchanges, _declare_exchange)
        await self.ensure_queues(platform.queues)
        for policy in platform.policies:
            pattern = f"^{re.escape(policy.queue)}$"
            body = {"pattern": pattern, "definition": dict(policy.definition), "apply-to": "queues", "priority": 10}
            await self._call("PUT", f"policies/{self._vhost}/{quote(policy.queue, safe='')}", body)
        for name in platform.former_queues:
            with suppress(BrokerRefusedError):  # its node is away: the queue is deleted when the operator starts again
                await self.delete_queues([name])

    async def ensure_vhost(self) -> None:
        """Make the virtual host of this access, with all permissions for its user."""
        await self._call("PUT", f"vhosts/{self._vhost}", {"description": "Simyard"})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        user = quote(self._access.username, safe="")
        await self._call("PUT", f"permissions/{self._vhost}/{user}", everything)

    async def delete_vhost(self) -> None:
        """Delete the virtual host of this access with everything in it, if it exists."""
        await self._call("DELETE", f"vhosts/{self._vhost}")

    async def bounds_messages(self) -> bool:
        """Return whether the broker refuses messages above ``MAX_BROKER_MESSAGE_BYTES``: its ``max_message_size``.

        No API tells that setting, so a message above it is sent to nobody.
        """
        try:
            async with asyncio.timeout(LISTING_SECONDS), open_link(self._access, "simyard message size") as link:
                await link.channel.basic_publish(bytes(MAX_BROKER_MESSAGE_BYTES + 1), routing_key="simyard.nobody")
                await link.channel.basic_qos(prefetch_count=1)
        except BrokerRefusedError:
            return True
        except TimeoutError:
            raise BrokerUnavailableError(f"the broker took no message within {LISTING_SECONDS:g} s") from None
        return False

    async def nodes(self) -> Mapping[str, NodeInfo]:
        """The nodes of the broker by name."""
        columns = "columns=name,running,partitions,mem_alarm,disk_free_alarm"
        return {
            str(node["name"]): NodeInfo(
                running=bool(node.get("running")),
                partitioned=bool(node.get("partitions")),
                short_of=tuple(what for key, what in _ALARMS.items() if node.get(key)),
            )
            for node in await self._call("GET", f"nodes?{columns}")
        }

    async def ensure_user(self, spec: UserSpec, password: str) -> None:
        """Make the user, or make it what it should be.

        The permissions come last: where a topic exchange has no topic permission, everything is permitted.
        """
        name = quote(spec.name, safe="")
        await self._call("PUT", f"users/{name}", {"password": password, "tags": ",".join(spec.tags)})
        for topic in spec.topic_permissions:
            await self._call(
                "PUT",
                f"topic-permissions/{self._vhost}/{name}",
                {"exchange": topic.exchange, "write": topic.write, "read": topic.read},
            )
        await self._call(
            "PUT",
            f"permissions/{self._vhost}/{name}",
            {"configure": spec.configure, "write": spec.write, "read": spec.read},
        )

    async def limit_user(self, name: str, limits: UserLimits) -> None:
        """Bound the connections and channels of a user, on all virtual hosts: more are refused, none is closed."""
        path = f"user-limits/{quote(name, safe='')}"
        await self._call("PUT", f"{path}/max-connections", {"value": limits.connections})
        await self._call("PUT", f"{path}/max-channels", {"value": limits.channels})

    async def users_without_connections(self) -> frozenset[str]:
        """Return the names of the users that may open no connection (:data:`~simyard.messaging.topology.NO_USE`)."""
        found = await self._call("GET", "user-limits")
        return frozenset(str(item["user"]) for item in found if item["value"].get("max-connections") == 0)

    async def close_connections(self, user: str) -> None:
        """Close all connections of a user."""
        await self._call("DELETE", f"connections/username/{quote(user, safe='')}")

    async def delete_user(self, name: str) -> None:
        """Delete a user, if it exists; the broker closes its connections."""
        await self._call("DELETE", f"users/{quote(name, safe='')}")

    async def ensure_queues(self, specs: Iterable[QueueSpec]) -> None:
        """Declare and bind queues, thousands at once.

        Raises:
            BrokerRefusedError: a queue exists with other arguments.
        """
        await self._pipelined(list(specs), _declare_queue)

    async def delete_queues(self, names: Iterable[str]) -> None:
        """Delete queues with what is in them, thousands at once; absent ones are no error."""
        await self._pipelined(list(names), _delete_queue)

    async def users(self) -> frozenset[str]:
        """The names of all users."""
        return frozenset(str(user["name"]) for user in await self._call("GET", "users?columns=name"))

    async def permitted_users(self) -> frozenset[str]:
        """Return the names of all users that have a permission on this virtual host."""
        found: set[str] = set()
        for kind in ("permissions", "topic-permissions"):  # a user that was made halfway has the latter only
            found |= {str(item["user"]) for item in await self._call("GET", f"vhosts/{self._vhost}/{kind}")}
        return frozenset(found)

    async def vhosts(self) -> frozenset[str]:
        """Return the names of all virtual hosts."""
        return frozenset(str(item["name"]) for item in await self._call("GET", "vhosts?columns=name"))

    async def vhosts_of(self, user: str) -> frozenset[str]:
        """Return the virtual hosts on which a user has permissions."""
        path = f"users/{quote(user, safe='')}/permissions"
        return frozenset(str(item["vhost"]) for item in await self._call("GET", path))

    async def exchanges(self) -> frozenset[str]:
        """Return the names of all exchanges."""
        return frozenset(str(item["name"]) for item in await self._call("GET", f"exchanges/{self._vhost}?columns=name"))

    async def delete_exchange(self, name: str) -> None:
        """Delete an exchange, if it exists."""
        await self._call("DELETE", f"exchanges/{self._vhost}/{quote(name, safe='')}")

    async def delete_policy(self, spec: PolicySpec) -> None:
        """Delete the policy of a queue, if it exists."""
        await self._call("DELETE", f"policies/{self._vhost}/{quote(spec.queue, safe='')}")

    async def queues(self, prefix: str) -> Mapping[str, QueueInfo]:
        """The queues whose name starts with ``prefix``."""
        answer = await self._call("GET", f"queues/{self._vhost}?columns=name,consumers,messages,messages_ready")
        return {name: _queue_info(queue) for queue in answer if (name := str(queue["name"])).startswith(prefix)}

    async def queue(self, name: str) -> QueueInfo | None:
        """A queue, by its name; None when there is none."""
        path = f"queues/{self._vhost}/{quote(name, safe='')}?columns=name,consumers,messages,messages_ready"
        found = await self._call("GET", path)
        return None if found is None else _queue_info(found)

    async def few_queues(self, prefix: str) -> Mapping[str, QueueInfo]:
        """As :meth:`queues`, but the broker itself picks them: for a prefix that few of its many queues have."""
        pattern = quote(f"^{re.escape(prefix)}", safe="")
        columns = "columns=name,consumers,messages,messages_ready"
        found: dict[str, QueueInfo] = {}
        page = pages = 1
        while page <= pages:
            where = f"queues/{self._vhost}?page={page}&page_size={PAGE}&use_regex=true&name={pattern}&{columns}"
            answer = await self._call("GET", where)
            pages, page = int(answer["page_count"]), page + 1
            for queue in answer["items"]:
                found[str(queue["name"])] = _queue_info(queue)
        return found

    async def consumers(self, prefix: str) -> Mapping[Consumer, str]:
        """The consumers of the queues whose name starts with ``prefix``, with the names of their connections.

        A consumer appears late, by the broker's statistics interval at most, and disappears at once.
        """
        columns = "columns=queue.name,consumer_tag,channel_details.connection_name"
        found: dict[Consumer, str] = {}
        for item in await self._call("GET", f"consumers/{self._vhost}?{columns}"):
            queue = str(item["queue"]["name"])
            if queue.startswith(prefix):
                connection = (item.get("channel_details") or {}).get("connection_name")
                found[Consumer(queue, str(item["consumer_tag"]))] = str(connection)
        return found

    async def consumer_logins(self, prefix: str) -> Mapping[str, frozenset[str]]:
        """Return under which logins the queues whose name starts with ``prefix`` are consumed; late as above."""
        found: dict[str, frozenset[str]] = {}
        for item in await self._call("GET", f"consumers/{self._vhost}?columns=queue.name,channel_details.user"):
            queue, channel = str(item["queue"]["name"]), item.get("channel_details") or {}
            found[queue] = found.get(queue, frozenset()) | {str(channel.get("user"))}
        return {queue: logins for queue, logins in found.items() if queue.startswith(prefix)}

    async def aclose(self) -> None:
        """Close the connections."""
        while self._idle:
            await self._idle.pop().aclose()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """The parsed answer; None where there is none, and for a DELETE of what is absent."""
        if self._session is None:
            self._session = self._open_session()
        url = f"{self._access.management_url}/api/{path}"
        timeout = aiohttp.ClientTimeout(
            total=LISTING_SECONDS if method == "GET" else CHANGE_SECONDS,
            sock_connect=CONNECT_SECONDS,
            sock_read=SILENT_SECONDS,
        )
        for left in reversed(range(ATTEMPTS)):
            try:
                async with self._session.request(
                    method, url, data=orjson.dumps(body) if body else None, timeout=timeout
                ) as response:
                    data = await response.read()
                break
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if not left or not isinstance(error, TimeoutError):
                    raise BrokerUnavailableError(f"{method} {path}: {str(error) or type(error).__name__}") from error
        if response.status == 404 and (method == "DELETE" or path.startswith("queues/")):
            return None
        if response.status >= 500:
            raise BrokerUnavailableError(f"{method} {path}: {response.status} {data.decode(errors='replace')[:500]}")
        if response.status >= 400:
            raise BrokerRefusedError(f"{method} {path}: {response.status} {data.decode(errors='replace')[:500]}")
        return orjson.loads(data) if data else None

    def _open_session(self) -> aiohttp.ClientSession:
        credentials = f"{self._access.username}:{self._access.password}".encode()
        return aiohttp.ClientSession(
            headers={
                "Authorization": f"Basic {base64.b64encode(credentials).decode()}",
                "Content-Type": "application/json",
            },
            connector=aiohttp.TCPConnector(
                limit=HTTP_CONNECTIONS, keepalive_timeout=IDLE_SECONDS, ssl=self._access.ssl_context() or True
            ),
        )

    async def _pipelined(self, items: Sequence[T], send: Callable[[AbstractChannel, T], Awaitable[None]]) -> None:
        """``send`` each item without waiting for the broker, which is waited for at the end of each channel."""
        if not items:
            return
        width = min(CHANNELS, len(items))
        try:
            async with asyncio.timeout(BULK_SECONDS), self._line() as line:

                async def send_share(channel: AbstractChannel, first: int) -> None:
                    for item in items[first::width]:
                        await send(channel, item)
                    await channel.basic_qos(prefetch_count=1)

                channels = await line.channels(width)
                await asyncio.gather(*(send_share(channel, first) for first, channel in enumerate(channels)))
        except TimeoutError:
            raise BrokerUnavailableError(
                f"the broker took more than {BULK_SECONDS:g} s for {len(items)} items"
            ) from None

    @asynccontextmanager
    async def _line(self) -> AsyncIterator[_Line]:
        """A connection that nobody else uses meanwhile: one that was used before, if it is still good."""
        while self._idle and self._idle[-1].connection.is_closed:
            await self._idle.pop().aclose()
        line = self._idle.pop() if self._idle else await _Line.open(self._access)
        try:
            with translated():
                yield line
        except BaseException:
            await line.aclose()
            raise
        if len(self._idle) < IDLE_CONNECTIONS:
            self._idle.append(line)
        else:
            await line.aclose()


def _queue_info(queue: Mapping[str, Any]) -> QueueInfo:
    return QueueInfo(queue.get("consumers"), queue.get("messages"), queue.get("messages_ready"))


async def _declare_exchange(channel: AbstractChannel, spec: ExchangeSpec) -> None:
    await channel.exchange_declare(spec.name, exchange_type=spec.kind, durable=True, nowait=True)


async def _declare_queue(channel: AbstractChannel, spec: QueueSpec) -> None:
    version = _version(channel)
    await channel.queue_declare(
        spec.name, durable=spec.is_durable(version), arguments={**spec.all_arguments(version)}, nowait=True
    )
    for binding in spec.bindings:
        await channel.queue_bind(spec.name, binding.exchange, binding.key, nowait=True)


def _version(channel: AbstractChannel) -> tuple[int, ...]:
    """Return the version of RabbitMQ at the other end, as far as it is made of numbers."""
    text = str(channel.connection.server_properties.get("version", ""))
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


async def _delete_queue(channel: AbstractChannel, name: str) -> None:
    await channel.queue_delete(name, nowait=True)
