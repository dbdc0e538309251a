# SPDX-License-Identifier: Apache-2.0
"""The login of a pool's broker user changes while workers are connected: no action is lost, and none runs twice."""

import asyncio
import contextlib
import json
import stat
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from simyard_adapter.login import Login, read_login, write_login
from simyard_adapter.wire import LOGIN_SEPARATOR, Event, Request, name_worker_queue, parse_identity

Service = Any
NEW_PASSWORD = "another-password"


def test_the_identity_of_a_login_is_without_its_suffix() -> None:
    assert parse_identity("pool-1") == "pool-1"
    assert parse_identity(f"pool-1{LOGIN_SEPARATOR}2.5") == "pool-1"


def test_a_login_is_written_for_its_owner_alone_and_read_again(tmp_path: Path) -> None:
    for number in (1, 2):
        write_login(tmp_path, Login("pool-1~2.0", f"secret-{number}"))
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_login(tmp_path) == Login("pool-1~2.0", "secret-2")


@pytest.mark.parametrize("content", [b"", b"[]", b'"x"', b'{"username": "x"}', b'{"username": 1, "password": "x"}'])
def test_a_login_that_cannot_be_read_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "login.json").write_bytes(content)
    assert read_login(tmp_path) is None


class Rotation:
    """The operator's part: a second login of the pool's user."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.login = f"{service.user}{LOGIN_SEPARATOR}1.1"

    async def make(self) -> None:
        manage, user = self._service.manage, quote(self.login, safe="")
        vhost = quote(self._service.vhost, safe="")
        await manage("PUT", f"users/{user}", {"password": NEW_PASSWORD, "tags": ""})
        permissions = await manage("GET", f"permissions/{vhost}/{quote(self._service.user)}")
        await manage(
            "PUT", f"permissions/{vhost}/{user}", {key: permissions[key] for key in ("configure", "write", "read")}
        )
        for topic in await manage("GET", f"topic-permissions/{vhost}/{quote(self._service.user)}"):
            body = {key: topic[key] for key in ("exchange", "write", "read")}
            await manage("PUT", f"topic-permissions/{vhost}/{user}", body)

    async def tell(self, worker: str = "w1") -> None:
        body = {"username": self.login, "password": NEW_PASSWORD}
        await self._service.send(Request.CREDENTIALS, body, worker=worker, reply=False)

    async def consumes(self, worker: str = "w1") -> list[str]:
        """The logins of the consumers of a worker's queue."""
        found = await self._service.manage("GET", f"consumers/{quote(self._service.vhost, safe='')}")
        queue = name_worker_queue(self._service.user, worker)
        # The details of a channel that has just been closed are an empty list.
        named = [item for item in found if item["queue"]["name"] == queue]
        return [item["channel_details"]["user"] for item in named if item["channel_details"]]

    async def done(self, worker: str = "w1") -> None:
        """Wait until a worker consumes under the new login alone."""
        async with asyncio.timeout(240):
            while await self.consumes(worker) != [self.login]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def refuse(self, login: str) -> None:
        """Delete a login, which ends its connections."""
        await self._service.manage("DELETE", f"users/{quote(login, safe='')}")


@pytest.fixture
async def rotation(service: Service) -> Any:
    made = Rotation(service)
    await made.make()
    yield made
    with contextlib.suppress(OSError):  # the test may have deleted it
        await made.refuse(made.login)


async def test_actions_that_run_while_the_login_changes_succeed_once(
    service: Service, rotation: Rotation, tmp_path: Path, lines: Any, gated: Any, until: Any
) -> None:
    await service.start()
    body = {"action": "once", "parameters": gated(), "tellBegun": True}
    sync = await service.send(Request.ACTION, body)
    await until(lambda: len(lines()) == 1)
    waits = await service.begin("once", gated())
    seen = len(service.events)
    await rotation.tell()
    await service.event(Event.REGISTER, after=seen)
    await rotation.done()  # the worker takes requests under the new login, and finishes what it has under the former
    assert (await service.ask(Request.LOG, {}))["log"]
    (tmp_path / "gate").touch()
    assert (await asyncio.wait_for(sync, 240))["result"] == {"square": 9}
    assert (await service.result(waits))["result"] == {"square": 9}
    assert len(lines()) == 2
    await rotation.refuse(service.user)
    assert (await service.act("square", gated()))["result"] == {"square": 9}


async def test_an_action_from_the_pools_queue_outlives_the_change(
    service: Service, rotation: Rotation, tmp_path: Path, lines: Any, gated: Any, until: Any
) -> None:
    await service.start()
    body = {"action": "once", "parameters": gated(), "tellBegun": True}
    first = await service.send(Request.ACTION, body, worker=None)
    await until(lambda: len(lines()) == 1)
    await rotation.tell()
    await rotation.done()
    (tmp_path / "gate").touch()
    assert (await asyncio.wait_for(first, 240))["result"] == {"square": 9}
    assert (await service.act("once", gated(), worker=None))["result"] == {"square": 9}
    assert len(lines()) == 2


async def test_an_adapter_that_starts_again_uses_the_newest_login(
    service: Service, rotation: Rotation, lines: Any, work: Any
) -> None:
    process = await service.start()
    await rotation.tell()
    await rotation.done()
    await process.kill()
    await rotation.refuse(service.user)
    await service.start()
    await service.act("once", work())
    assert len(lines()) == 1


async def test_a_login_that_the_broker_refuses_is_followed_by_the_other_one(
    service: Service, rotation: Rotation, lines: Any, work: Any
) -> None:
    process = await service.start()
    await rotation.tell()
    await rotation.done()
    await process.kill()
    await rotation.refuse(rotation.login)
    await service.start()  # with the login of its bootstrap
    await rotation.make()
    seen = len(service.events)
    await rotation.refuse(service.user)
    await service.event(Event.REGISTER, after=seen)  # with the other one
    await service.act("once", work())
    assert len(lines()) == 1


async def test_the_login_of_another_user_is_refused(service: Service) -> None:
    await service.start()
    reply = await service.ask(Request.CREDENTIALS, {"username": "pool-other~1.1", "password": "x"})
    assert reply["error"]["field"] == "username"
    reply = await service.ask(Request.CREDENTIALS, {"username": service.user})
    assert reply["error"]["reason"] == "InvalidRequest"
    assert json.loads((service.directory / "w1" / "bootstrap.json").read_bytes())["broker"]["username"] == service.user
    assert not (service.directory / "w1" / "login.json").exists()
