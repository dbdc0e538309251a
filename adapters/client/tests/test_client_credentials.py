# SPDX-License-Identifier: Apache-2.0
"""Credentials are renewed before they expire, and when the API server refuses them."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from fake_server import FakeServer, make_status

from simyard_client.api import Api
from simyard_client.credentials import RENEWAL_SECONDS, TOKEN_FILE_SECONDS, Credentials
from simyard_client.errors import ConfigError, UnauthorizedError
from simyard_client.kubeconfig import Access, Cluster, ExecPlugin, User

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
VERSION = "client.authentication.k8s.io/v1"


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = NOW.timestamp()

    def __call__(self) -> float:
        return self.seconds


class Plugin:
    """An exec plugin that counts its runs; each token is the number of the run."""

    def __init__(self, folder: Path) -> None:
        self.runs = folder / "runs"
        self.asked = folder / "asked"
        self.answer = folder / "answer"
        self.script = folder / "plugin.py"
        self.script.write_text(
            "import os, pathlib, sys\n"
            f"runs = pathlib.Path({str(self.runs)!r})\n"
            "number = len(runs.read_text()) + 1 if runs.exists() else 1\n"
            "runs.write_text('x' * number)\n"
            f"pathlib.Path({str(self.asked)!r}).write_text(os.environ['KUBERNETES_EXEC_INFO'])\n"
            f"print(pathlib.Path({str(self.answer)!r}).read_text().replace('NUMBER', str(number)))\n"
        )
        self.say(token="NUMBER")

    def say(self, **status: Any) -> None:
        self.answer.write_text(json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status}))

    def count(self) -> int:
        return len(self.runs.read_text())

    def make(self, **changes: Any) -> Access:
        plugin = ExecPlugin(sys.executable, (str(self.script),), interactive="Never", **changes)
        return Access(Cluster("https://c", tls_server_name="name"), User(plugin=plugin))


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


async def test_a_plugin_runs_again_shortly_before_its_credentials_expire(plugin: Plugin) -> None:
    clock = Clock()
    credentials = Credentials(plugin.make(), clock=clock)
    plugin.say(token="NUMBER", expirationTimestamp=(NOW + timedelta(minutes=10)).isoformat())
    found = await asyncio.gather(*(credentials.get() for _ in range(5)))
    assert [(item.token, credentials.make_headers(item)) for item in found] == [
        ("1", [("Authorization", "Bearer 1")])
    ] * 5
    clock.seconds += 600 - RENEWAL_SECONDS - 1
    assert (await credentials.get()).token == "1"
    clock.seconds += 1
    assert (await credentials.get()).token == "2"
    assert plugin.count() == 2


async def test_refused_credentials_are_renewed_once(plugin: Plugin) -> None:
    credentials = Credentials(plugin.make())
    refused = await credentials.get()
    renewed = await asyncio.gather(*(credentials.get(refused) for _ in range(5)))
    assert {item.token for item in renewed} == {"2"}


async def test_a_plugin_gets_the_cluster_if_it_asks_for_it(plugin: Plugin) -> None:
    await Credentials(plugin.make(give_cluster=True)).get()
    asked = json.loads(plugin.asked.read_text())
    cluster = {"server": "https://c", "tls-server-name": "name"}
    assert asked["spec"] == {"interactive": False, "cluster": cluster}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("{}", "printed no ExecCredential"),
        ("no", "printed no ExecCredential"),
        (json.dumps({"apiVersion": "v0", "status": {"token": "x"}}), "the kubeconfig says"),
        (json.dumps({"apiVersion": VERSION, "status": {}}), "neither a token nor a certificate"),
    ],
)
async def test_a_plugin_without_credentials_is_an_error(plugin: Plugin, answer: str, message: str) -> None:
    plugin.answer.write_text(answer)
    with pytest.raises(ConfigError, match=message):
        await Credentials(plugin.make()).get()


async def test_a_plugin_that_fails_is_an_error_with_its_words(plugin: Plugin) -> None:
    plugin.script.write_text("import sys; sys.exit('log in first')")
    with pytest.raises(ConfigError, match="log in first"):
        await Credentials(plugin.make()).get()
    absent = Access(Cluster("https://c"), User(plugin=ExecPlugin("absent-plugin", hint="Install it.")))
    with pytest.raises(ConfigError, match=r"absent-plugin.*Install it"):
        await Credentials(absent).get()


async def test_a_token_file_is_read_again_after_a_minute(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "token"
    file.write_text("first\n")
    credentials = Credentials(Access(Cluster("https://c"), User(token_file=file)), clock=clock)
    assert (await credentials.get()).token == "first"
    file.write_text("second\n")
    assert (await credentials.get()).token == "first"
    clock.seconds += TOKEN_FILE_SECONDS
    assert (await credentials.get()).token == "second"


async def test_a_request_that_is_refused_is_sent_again_with_renewed_credentials(
    plugin: Plugin, server: FakeServer
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.headers["Authorization"] == "Bearer 2":
            return web.json_response({})
        return make_status(401, "Unauthorized")

    server.answer = answer
    access = plugin.make()
    api = Api(Access(Cluster(server.url), access.user), patience_seconds=5)
    try:
        assert await api.create("/path", {}) == {}
        assert server.count("POST") == 2
        plugin.say(token="other")
        server.answer = lambda request: refuse()
        with pytest.raises(UnauthorizedError):
            await api.create("/path", {})
    finally:
        await api.aclose()


async def refuse() -> web.StreamResponse:
    return make_status(401, "Unauthorized")
