# SPDX-License-Identifier: Apache-2.0
"""The messages of Cloud4E's client of 2014 (rOCCI, branch cloud4e, client_amqp.rb), and its way to read answers.

Only the credentials differ: that client has a password built in where clients of Simyard send a token, and sends none
with ``get``.
"""

import asyncio
import contextlib
import json
import random
import re
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiormq
from aiormq.abc import AbstractChannel, DeliveredMessage

Properties = aiormq.spec.Basic.Properties
URI = re.compile(r"([a-z][a-z0-9+.-]*:)?[!#-;=?-Z_a-z~]*", re.ASCII | re.IGNORECASE)
"""The URIs that Ruby's URI.parse accepts, line ends excluded."""
JSON = "application/occi+json"


class RocciError(Exception):
    """``raise "OCCI-Server raise error: ..."``."""


class RocciClient:
    """``ClientAmqp``: message ids count from 1, and the time is the name of the reply queue."""

    def __init__(self, channel: AbstractChannel, endpoint: str, media_type: str, token: str, replies: str) -> None:
        self._channel = channel
        self._endpoint = endpoint
        self._media_type = media_type
        self._auth = {"type": "basic", "username": "user", "password": token}
        self._replies = replies
        self._number = 0
        self._waiting: dict[str, asyncio.Future[DeliveredMessage]] = {}
        self.last_response_status = 0

    async def get(self, path: str, *, uri_list: bool = False) -> str:
        headers = {"accept": "text/uri-list" if uri_list else self._media_type, "path_info": "/" + path.lstrip("/")}
        return (await self._publish("get", "", "text/plain", {**headers, "auth": self._auth})).decode()

    async def list(self, kind: str) -> list[str]:
        return (await self.get(f"{kind}/", uri_list=True)).split("\n")

    async def describe(self, location: str) -> str:
        return await self.get(self._path(location))

    async def create(self, kind: str, collection: Mapping[str, Any]) -> str:
        return await self._post(f"/{kind}/", collection)

    async def register_mixin(self, collection: Mapping[str, Any]) -> str:
        return await self._post("/-/", collection)

    async def unregister_mixin(self, collection: Mapping[str, Any]) -> None:
        await self._delete("/-/", self._rendered(collection))

    async def trigger(self, location: str, action: Mapping[str, Any], parameters: Mapping[str, object]) -> str:
        path = f"{self._path(location)}?action={action['term']}"
        for name, value in parameters.items():
            path += f"&{name}={value}"
        return await self._post(path, {"actions": [action]})

    async def delete(self, location: str) -> None:
        await self._delete(self._path(location), "")

    def _path(self, location: str) -> str:
        assert location.startswith(self._endpoint), f"Unknown resource identifier! {location}"
        return location.replace(self._endpoint, "/")

    def _rendered(self, collection: Mapping[str, Any]) -> str:
        if self._media_type == JSON:
            return json.dumps(collection)
        return "".join(
            _category(item, kind) + "\n"
            for kind, plural in (("mixin", "mixins"), ("action", "actions"))
            for item in collection.get(plural, ())
        )

    async def _post(self, path: str, collection: Mapping[str, Any]) -> str:
        headers = {"accept": "text/uri-list", "path_info": f"/{path.lstrip('/')}", "auth": self._auth}
        content_type = JSON if self._media_type == JSON else "text/plain"
        payload = (await self._publish("post", self._rendered(collection), content_type, headers)).decode()
        assert URI.fullmatch(payload), f"Can not parse post payload: {payload!r}"
        return payload

    async def _delete(self, path: str, body: str) -> None:
        headers = {"accept": self._media_type, "path_info": f"/{path.lstrip('/')}", "auth": self._auth}
        await self._publish("delete", body, JSON if body and self._media_type == JSON else "text/plain", headers)

    async def _publish(self, method: str, body: str, content_type: str, headers: Mapping[str, Any]) -> bytes:
        self._number += 1
        properties = Properties(
            message_type=method,
            content_type=content_type,
            reply_to=self._replies,
            message_id=str(self._number),
            headers=dict(headers),
        )
        answer = self._waiting[str(self._number)] = asyncio.get_running_loop().create_future()
        await self._channel.basic_publish(
            body.encode(), routing_key=f"amqp.occi.{self._endpoint}", properties=properties
        )
        async with asyncio.timeout(240):
            message = await answer
        answered = message.header.properties.headers or {}
        self.last_response_status = int(str(answered["status_code"]))
        if answered.get("is_error"):
            raise RocciError(f"{self.last_response_status}: {message.body.decode()}")
        return message.body

    async def receive(self, message: DeliveredMessage) -> None:
        """Receive an answer."""
        self._waiting.pop(message.header.properties.correlation_id or "").set_result(message)


def _category(item: Mapping[str, Any], kind: str) -> str:
    """``to_text`` of a category: no space after semicolons, and only the names of attributes."""
    text = f'Category: {item["term"]};scheme="{item["scheme"]}";class="{kind}"'
    if item.get("title"):
        text += f';title="{item["title"]}"'
    if kind == "mixin":
        if item.get("related"):
            text += f';rel="{" ".join(item["related"])}"'
        text += f';location="{item["location"]}"'
    if item.get("attributes"):
        text += f';attributes="{" ".join(_names(item["attributes"]))}"'
    if item.get("actions"):
        text += f';actions="{" ".join(action["scheme"] + action["term"] for action in item["actions"])}"'
    return text


def _names(attributes: Mapping[str, Any], prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, value in attributes.items():
        found += [prefix + name] if "type" in value else _names(value, f"{prefix}{name}.")
    return found


@contextlib.asynccontextmanager
async def rocci_client_of(url: str, endpoint: str, media_type: str, token: str) -> AsyncIterator[RocciClient]:
    connection = aiormq.Connection(url)
    await connection.connect()
    try:
        channel = await connection.channel()
        replies = f"{time.time()}{random.random()}"
        await channel.queue_declare(replies, exclusive=True)
        client = RocciClient(channel, endpoint, media_type, token, replies)
        await channel.basic_consume(replies, client.receive, no_ack=True)
        yield client
    finally:
        await connection.close()
