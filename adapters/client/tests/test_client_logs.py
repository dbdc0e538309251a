# SPDX-License-Identifier: Apache-2.0
"""The log of an action has each line once: stored parts first, and then the lines of the worker."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from aiohttp import web
from fake_server import FakeServer, make_status

from simyard_client import Client
from simyard_client.connection import Connection
from simyard_client.kubeconfig import Access, Cluster, User
from simyard_client.logs import ActionLog
from simyard_client.streams import iterate

LINES = ["one\n", "two\x1b[2J\n", "three\n", "four\n"]


class RunningAction:
    """An action that writes LINES; ``stored`` has the numbers of lines of the stored parts."""

    def __init__(self, server: FakeServer) -> None:
        self.url = server.url
        self.stored: list[int] = []
        self.files: dict[str, bytes] = {}
        self.finished = False
        self.worker_answers = True
        self.followed = 0
        server.answer = self.answer

    async def answer(self, request: web.Request) -> web.StreamResponse:
        name = request.path.rpartition("/")[2]
        if "/files/" in request.path:
            download = {"method": "GET", "url": f"{self.url}/store/{name}?x=y"}
            return web.json_response({"spec": {"bytes": 1}, "status": {"download": download}})
        if request.path.startswith("/store/"):
            return web.Response(body=self.files[name])
        if name == "log":
            return self.answer_worker(request)
        return web.json_response(self.make_action())

    def answer_worker(self, request: web.Request) -> web.Response:
        if not self.worker_answers:
            return make_status(404, "NotFound")
        rest = "".join(LINES).encode()[int(request.query["after"]) :].decode()
        if "follow" not in request.query:
            return web.Response(text=rest)
        self.followed += 1
        self.stored, self.finished = ([1, 2], False) if self.followed == 1 else ([1, 2, 1], True)
        return web.Response(text="two\nthree\nfo" if self.followed == 1 else "four\n")

    def make_action(self) -> dict[str, Any]:
        parts, start = [], 0
        for count in self.stored:
            content = "".join(LINES[start : start + count]).encode()
            start += count
            address = f"sha256:{hashlib.sha256(content).hexdigest()}"
            self.files[address] = content
            parts.append({"file": address, "bytes": len(content)})
        condition = {"type": "Complete", "status": "True" if self.finished else "False"}
        return {"metadata": {"uid": "u"}, "status": {"worker": "w", "log": parts, "conditions": [condition]}}


def test_stored_lines_come_before_those_of_the_worker(server: FakeServer, client: Client) -> None:
    action = RunningAction(server)
    action.stored = [1, 1]
    assert list(client.action("a").logs()) == ["one\n", "two [2J\n", "three\n", "four\n"]


def test_a_follower_gets_each_line_once_although_parts_are_stored_meanwhile(server: FakeServer) -> None:
    action = RunningAction(server)
    action.stored = [1]
    connection = Connection(Access(Cluster(server.url), User()))
    log = ActionLog(connection, "a", sleep=lambda _: asyncio.sleep(0))
    assert list(iterate(connection, log.read(follow=True))) == ["one\n", "two\n", "three\n", "four\n"]
    assert action.followed == 2
    connection.close()


def test_the_log_of_an_action_is_there_without_its_worker(server: FakeServer, client: Client) -> None:
    action = RunningAction(server)
    action.stored, action.finished, action.worker_answers = [4], True, False
    assert "".join(client.action("a").logs()) == "one\ntwo [2J\nthree\nfour\n"
