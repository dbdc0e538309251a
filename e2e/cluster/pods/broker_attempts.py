# SPDX-License-Identifier: Apache-2.0
"""Try at the broker, as the user of a pool in a pod, everything that a worker must not do; print the answers.

The variable ``ATTEMPTS`` has the settings: ``host``, ``port``, ``managementPort``, ``vhost``, ``otherVhosts``, ``ca``,
``username``, ``password``, ``worker`` (its own uid), ``own`` (its queue), and of another pool ``foreignUser``,
``foreignWorker``, ``foreignQueue`` and ``foreignPool``. Each printed line is ``{"attempt", "answer"}``.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import aiormq
from aiormq.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import AMQPError, DeliveryError
from pamqp.commands import Basic
from yarl import URL

SECONDS = 20
PROPERTIES = Basic.Properties(content_type="application/json")
GIVEN: dict[str, Any] = json.loads(os.environ["ATTEMPTS"])
Attempt = Callable[[AbstractChannel], Awaitable[object]]


def report(attempt: str, answer: str) -> None:
    print(json.dumps({"attempt": attempt, "answer": answer}), flush=True)


async def connect(vhost: str, username: str, password: str) -> AbstractConnection:
    url = URL.build(
        scheme="amqps", user=username, password=password, host=GIVEN["host"], port=GIVEN["port"], path=f"/{vhost}"
    )
    context = ssl.create_default_context(cadata=GIVEN["ca"])
    return await asyncio.wait_for(aiormq.connect(url, context=context), SECONDS)


def publish(exchange: str, key: str, **properties: Any) -> Attempt:
    """Publish and wait for the broker's confirmation; the broker refuses a message that no queue accepts."""

    async def attempt(channel: AbstractChannel) -> object:
        sent = Basic.Properties(content_type="application/json", **properties)
        confirmed = await channel.basic_publish(
            b"{}", exchange=exchange, routing_key=key, properties=sent, mandatory=True
        )
        return confirmed if isinstance(confirmed, Basic.Ack) else f"not taken: {type(confirmed).__name__}"

    return attempt


def get(queue: str) -> Attempt:
    return lambda channel: channel.basic_get(queue)


def consume(queue: str) -> Attempt:
    async def ignore(_: object) -> None:
        pass

    return lambda channel: channel.basic_consume(queue, ignore)


def purge(queue: str) -> Attempt:
    return lambda channel: channel.queue_purge(queue)


def delete(queue: str) -> Attempt:
    return lambda channel: channel.queue_delete(queue)


def attempts() -> dict[str, Attempt]:
    """Return the attempts by their name in the table."""
    mine, other, user = GIVEN["own"], GIVEN["foreignQueue"], GIVEN["foreignUser"]
    reading = {
        f"read {queue}": queue for queue in (other, GIVEN["foreignPool"], "simyard.operator", "simyard.dead.requests")
    }
    table: dict[str, Attempt] = {}
    for name, queue in reading.items():
        table[f"get: {name}"] = get(queue)
        table[f"consume: {name}"] = consume(queue)
        table[f"purge: {name}"] = purge(queue)
    for queue in (mine, other, "simyard.operator"):
        table[f"delete queue {queue}"] = delete(queue)
        table[f"write to queue {queue} by the default exchange"] = publish("", queue)
    table |= {
        "declare a queue of its own": lambda channel: channel.queue_declare("simyard.worker.mine"),
        "declare a queue named by the broker": lambda channel: channel.queue_declare(""),
        "declare a queue that dead-letters to the default exchange": lambda channel: channel.queue_declare(
            "trap", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": other}
        ),
        "declare an exchange": lambda channel: channel.exchange_declare("mine"),
        "delete simyard.events": lambda channel: channel.exchange_delete("simyard.events"),
        "bind its own queue to simyard.events": lambda channel: channel.queue_bind(mine, "simyard.events", "#"),
        "bind its own queue to simyard.replies": lambda channel: channel.queue_bind(mine, "simyard.replies", "#"),
        "unbind the operator's queue": lambda channel: channel.queue_unbind(
            "simyard.operator", "simyard.events", "result.#"
        ),
        "bind one exchange to another": lambda channel: channel.exchange_bind("simyard.replies", "simyard.events", "#"),
        "an event as another pool": publish("simyard.events", f"result.{user}.{GIVEN['foreignWorker']}"),
        "an event as another user by user_id": publish(
            "simyard.events", f"result.{GIVEN['username']}.{GIVEN['worker']}", user_id=user
        ),
        "a reply as another pool": publish("simyard.replies", f"reply.somebody.{user}"),
        "write to amq.topic": publish("amq.topic", "result.x.y"),
        "write to amq.direct": publish("amq.direct", "x"),
        "write to amq.fanout": publish("amq.fanout", "x"),
        "write to simyard.dead": publish("simyard.dead", "x"),
        "read the broker's events": lambda channel: channel.queue_bind(mine, "amq.rabbitmq.event", "#"),
        "read the broker's log": lambda channel: channel.queue_bind(mine, "amq.rabbitmq.log", "#"),
    }
    return table


async def permitted(connection: AbstractConnection) -> None:
    """Return the permitted operations; they show that a refusal is not that of a user without any rights."""
    channel = await connection.channel(publisher_confirms=True)
    await channel.queue_declare(GIVEN["own"], passive=True)
    report("permitted: see its own queue", "done")
    event = f"active.{GIVEN['username']}.{GIVEN['worker']}"
    answer = await publish("simyard.events", event, user_id=GIVEN["username"], message_type="active")(channel)
    report("permitted: an event in its own name", "done" if isinstance(answer, Basic.Ack) else str(answer))
    await channel.close()


async def amqp(connection: AbstractConnection) -> None:
    for name, attempt in attempts().items():
        channel = await connection.channel(publisher_confirms=True)
        try:
            answer = await asyncio.wait_for(attempt(channel), SECONDS)
            report(name, f"done: {type(answer).__name__}" if not isinstance(answer, str) else answer)
        except DeliveryError as error:
            report(name, f"not taken: {type(error).__name__}")
        except AMQPError as error:
            report(name, f"refused: {type(error).__name__}")
        if not channel.is_closed:
            await channel.close()


async def strangers() -> None:
    """Try other virtual hosts, other users with this password, and no password."""
    logins = [(f"virtual host {vhost}", vhost, GIVEN["username"], GIVEN["password"]) for vhost in GIVEN["otherVhosts"]]
    logins += [
        (f"as {user} with its own password", GIVEN["vhost"], user, GIVEN["password"])
        for user in (GIVEN["foreignUser"], "simyard-apiserver", "simyard-frontend", "guest")
    ]
    logins += [
        ("with a wrong password", GIVEN["vhost"], GIVEN["username"], "wrong"),
        ("as guest", "/", "guest", "guest"),
    ]
    for name, vhost, username, password in logins:
        try:
            connection = await connect(vhost, username, password)
        except TimeoutError:  # also an OSError, and no refusal
            report(name, "no answer")
        except (AMQPError, OSError) as error:
            report(name, f"refused: {type(error).__name__}")
        else:
            report(name, "done")
            await connection.close()


async def management() -> None:
    """Try the management API, which refuses users without a tag."""
    authorization = aiohttp.BasicAuth(GIVEN["username"], GIVEN["password"])
    base = f"https://{GIVEN['host']}:{GIVEN['managementPort']}/api"
    requests = [("GET", path) for path in ("whoami", "overview", "users", "queues", "connections", "definitions")]
    requests += [("PUT", "users/mallory"), ("PUT", "vhosts/mallory"), ("DELETE", f"users/{GIVEN['foreignUser']}")]
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    context = ssl.create_default_context(cadata=GIVEN["ca"])
    async with aiohttp.ClientSession(auth=authorization, timeout=timeout) as session:
        for method, path in requests:
            body = {"password": "x", "tags": "administrator"} if method == "PUT" else None
            name = f"management: {method} {path}"
            try:
                async with session.request(method, f"{base}/{path}", ssl=context, json=body) as answer:
                    report(name, f"{'done' if answer.status < 400 else 'refused'}: {answer.status}")
            except (aiohttp.ClientError, TimeoutError) as error:  # the NetworkPolicy, where it is enforced
                report(name, f"refused: {type(error).__name__}")


async def main() -> None:
    connection = await connect(GIVEN["vhost"], GIVEN["username"], GIVEN["password"])
    await permitted(connection)
    await amqp(connection)
    await strangers()
    await management()
    await permitted(connection)
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main())
