# SPDX-License-Identifier: Apache-2.0
"""Administration of the broker: it creates, lists and deletes users, permissions, exchanges and queues.

The management API creates users. AMQP declares queues and exchanges (:mod:`simyard.messaging.pipeline`).
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson

from simyard.messaging.access import BrokerAccess
from simyard.messaging.connection import open_channel
from simyard.messaging.consumers import Consumer
from simyard.messaging.errors import BrokerRefusedError, BrokerUnavailableError
from simyard.messaging.pipeline import Pipeline, declare_exchange, declare_queue, delete_queue
from simyard.messaging.topology import (
    PlatformSpec,
    PolicySpec,
    QueueSpec,
    UserLimits,
    UserSpec,
    build_platform_specs,
)
from simyard_adapter.limits import MAX_BROKER_MESSAGE_BYTES

LISTING_SECONDS = 30.0
SILENT_SECONDS = 10.0
CHANGE_SECONDS = 5.0
CONNECT_SECONDS = 2.0
ATTEMPTS = 3
"""Maximum number of attempts for a call that gets no answer; a load balancer can send each one to another node."""
IDLE_SECONDS = 2.0
"""Idle time after which a connection is not used again, because its node may be gone."""
HTTP_CONNECTIONS = 8
PAGE = 500
"""Number of items in one page of a listing; the broker permits no more."""


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """The state of a queue, as the management API reports it with a delay of up to 10 s.

    None stands for an unknown number. ``ready`` is the number of messages that no consumer has received.
    """

    consumers: int | None
    messages: int | None
    ready: int | None


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """The state of a node of the broker. While one node is ``short_of`` memory or disk, no client may publish."""

    running: bool
    partitioned: bool = False
    short_of: tuple[str, ...] = ()


_ALARMS = {"mem_alarm": "memory", "disk_free_alarm": "disk space"}


class BrokerAdmin:
    """A client for the administration of one virtual host.

    Its user must have the tag ``administrator`` and all permissions on the virtual host. Every call is idempotent and
    has a timeout, and raises :class:`~simyard.messaging.errors.BrokerUnavailableError` or
    :class:`~simyard.messaging.errors.BrokerRefusedError`.
    """

    def __init__(self, access: BrokerAccess) -> None:
        self._access = access
        self._vhost = quote(access.vhost, safe="")
        self._session: aiohttp.ClientSession | None = None
        self._pipeline = Pipeline(access)

    async def ensure_platform(self, platform: PlatformSpec | None = None) -> None:
        """Create the exchanges, queues and policies of ``platform``; by default, the ones of the installation."""
        platform = platform or build_platform_specs()
        await self._pipeline.send(platform.exchanges, declare_exchange)
        await self.ensure_queues(platform.queues)
        for policy in platform.policies:
            pattern = f"^{re.escape(policy.queue)}$"
            body = {"pattern": pattern, "definition": dict(policy.definition), "apply-to": "queues", "priority": 10}
            await self._call("PUT", f"policies/{self._vhost}/{quote(policy.queue, safe='')}", body)
        for name in platform.former_queues:
            with suppress(BrokerRefusedError):  # the queue's node is down; the next start of the operator deletes it
                await self.delete_queues([name])

    async def ensure_vhost(self) -> None:
        """Create the virtual host of this access, with all permissions for the user of the access."""
        await self._call("PUT", f"vhosts/{self._vhost}", {"description": "Simyard"})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        user = quote(self._access.username, safe="")
        await self._call("PUT", f"permissions/{self._vhost}/{user}", everything)

    async def delete_vhost(self) -> None:
        """Delete the virtual host of this access, if it exists, with all its contents."""
        await self._call("DELETE", f"vhosts/{self._vhost}")

    async def has_message_limit(self) -> bool:
        """Return whether the broker's ``max_message_size`` is at most ``MAX_BROKER_MESSAGE_BYTES``.

        No API reports this setting. So the method sends a larger message to a queue that does not exist.
        """
        try:
            async with asyncio.timeout(LISTING_SECONDS), open_channel(self._access, "simyard message size") as link:
                await link.channel.basic_publish(bytes(MAX_BROKER_MESSAGE_BYTES + 1), routing_key="simyard.nobody")
                await link.channel.basic_qos(prefetch_count=1)
        except BrokerRefusedError:
            return True
        except TimeoutError:
            raise BrokerUnavailableError(f"the broker accepted no message within {LISTING_SECONDS:g} s") from None
        return False

    async def list_nodes(self) -> Mapping[str, NodeInfo]:
        """Return the nodes of the broker by name."""
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
        """Create or update a user with its password and permissions.

        The method writes the other permissions after the topic permissions, because a user without topic permissions
        may use all routing keys of a topic exchange.
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
        """Limit the connections and channels of a user on all virtual hosts. Existing connections stay open."""
        path = f"user-limits/{quote(name, safe='')}"
        await self._call("PUT", f"{path}/max-connections", {"value": limits.connections})
        await self._call("PUT", f"{path}/max-channels", {"value": limits.channels})

    async def list_users_without_connections(self) -> frozenset[str]:
        """Return the names of the users that are cut off: their limits permit no connection."""
        found = await self._call("GET", "user-limits")
        return frozenset(str(item["user"]) for item in found if item["value"].get("max-connections") == 0)

    async def close_connections(self, user: str) -> None:
        """Close all connections of a user."""
        await self._call("DELETE", f"connections/username/{quote(user, safe='')}")

    async def delete_user(self, name: str) -> None:
        """Delete a user if it exists; the broker closes its connections."""
        await self._call("DELETE", f"users/{quote(name, safe='')}")

    async def ensure_queues(self, specs: Iterable[QueueSpec]) -> None:
        """Declare and bind queues in bulk.

        Raises:
            BrokerRefusedError: a queue exists with other arguments.
        """
        await self._pipeline.send(list(specs), declare_queue)

    async def delete_queues(self, names: Iterable[str]) -> None:
        """Delete queues and their messages in bulk. Queues that do not exist cause no error."""
        await self._pipeline.send(list(names), delete_queue)

    async def list_users(self) -> frozenset[str]:
        """Return the names of all users."""
        return frozenset(str(user["name"]) for user in await self._call("GET", "users?columns=name"))

    async def list_permitted_users(self) -> frozenset[str]:
        """Return the names of all users that have a permission on this virtual host."""
        found: set[str] = set()
        for kind in ("permissions", "topic-permissions"):  # a user that is only partly created may have only one kind
            found |= {str(item["user"]) for item in await self._call("GET", f"vhosts/{self._vhost}/{kind}")}
        return frozenset(found)

    async def list_vhosts(self) -> frozenset[str]:
        """Return the names of all virtual hosts."""
        return frozenset(str(item["name"]) for item in await self._call("GET", "vhosts?columns=name"))

    async def list_vhosts_of(self, user: str) -> frozenset[str]:
        """Return the virtual hosts on which a user has permissions."""
        path = f"users/{quote(user, safe='')}/permissions"
        return frozenset(str(item["vhost"]) for item in await self._call("GET", path))

    async def list_exchanges(self) -> frozenset[str]:
        """Return the names of all exchanges."""
        return frozenset(str(item["name"]) for item in await self._call("GET", f"exchanges/{self._vhost}?columns=name"))

    async def delete_exchange(self, name: str) -> None:
        """Delete an exchange if it exists."""
        await self._call("DELETE", f"exchanges/{self._vhost}/{quote(name, safe='')}")

    async def delete_policy(self, spec: PolicySpec) -> None:
        """Delete the policy of a queue if it exists."""
        await self._call("DELETE", f"policies/{self._vhost}/{quote(spec.queue, safe='')}")

    async def list_queues(self, prefix: str) -> Mapping[str, QueueInfo]:
        """Return the queues whose names start with ``prefix``."""
        answer = await self._call("GET", f"queues/{self._vhost}?columns=name,consumers,messages,messages_ready")
        return {name: _queue_info(queue) for queue in answer if (name := str(queue["name"])).startswith(prefix)}

    async def get_queue(self, name: str) -> QueueInfo | None:
        """Return a queue by its name; None if it does not exist."""
        path = f"queues/{self._vhost}/{quote(name, safe='')}?columns=name,consumers,messages,messages_ready"
        found = await self._call("GET", path)
        return None if found is None else _queue_info(found)

    async def search_queues(self, prefix: str) -> Mapping[str, QueueInfo]:
        """Return the queues whose names start with ``prefix``; the broker itself selects them.

        The search costs less than :meth:`list_queues` if few of many queues have the prefix.
        """
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

    async def list_consumers(self, prefix: str) -> Mapping[Consumer, str]:
        """Return the consumers of the queues whose names start with ``prefix``, with the names of their connections.

        A new consumer can be missing for the broker's statistics interval. A consumer that has ended is missing at
        once.
        """
        columns = "columns=queue.name,consumer_tag,channel_details.connection_name"
        found: dict[Consumer, str] = {}
        for item in await self._call("GET", f"consumers/{self._vhost}?{columns}"):
            queue = str(item["queue"]["name"])
            if queue.startswith(prefix):
                connection = (item.get("channel_details") or {}).get("connection_name")
                found[Consumer(queue, str(item["consumer_tag"]))] = str(connection)
        return found

    async def list_consumer_logins(self, prefix: str) -> Mapping[str, frozenset[str]]:
        """Return the logins of the consumers of each queue with a ``prefix``, as late as :meth:`list_consumers`."""
        found: dict[str, frozenset[str]] = {}
        for item in await self._call("GET", f"consumers/{self._vhost}?columns=queue.name,channel_details.user"):
            queue, channel = str(item["queue"]["name"]), item.get("channel_details") or {}
            found[queue] = found.get(queue, frozenset()) | {str(channel.get("user"))}
        return {queue: logins for queue, logins in found.items() if queue.startswith(prefix)}

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pipeline.aclose()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Call the management API; return the parsed answer, or None if it is empty or the object does not exist."""
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
                limit=HTTP_CONNECTIONS, keepalive_timeout=IDLE_SECONDS, ssl=self._access.make_ssl_context() or True
            ),
        )


def _queue_info(queue: Mapping[str, Any]) -> QueueInfo:
    return QueueInfo(queue.get("consumers"), queue.get("messages"), queue.get("messages_ready"))
