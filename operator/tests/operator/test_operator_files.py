# SPDX-License-Identifier: Apache-2.0
"""Files as parameters and results of actions: a real S3 server, API server and broker, real adapters and programs."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fleet_world import World, is_complete, living

from simyard.api import names
from simyard.api.base import Json
from simyard.api.service_action import ServiceActionStatus
from simyard.files.access import StoreAccess
from simyard.files.catalog import FileCatalog, open_catalog
from simyard.files.keys import FileOrigin
from simyard.files.uploads import Upload
from simyard.plan.actions import get_invocation_id
from simyard.serving.broker import BrokerClient
from simyard.serving.calls import ResourceCall
from simyard.serving.directory import Directory
from simyard.serving.logs import FollowedLog, Logs
from simyard_adapter.digests import digest_file
from simyard_adapter.transfers import Transfers
from simyard_adapter.uploads import upload_file
from simyard_dev.file_store import FileStore

SERVICE = "sorter"
MAX_BYTES = 1_000_000
FILE = {"type": "file", "maxBytes": MAX_BYTES}
FILES = {"type": "array", "items": {"type": "file"}}
ACTIONS: list[dict[str, Any]] = [
    {
        "name": "sort",
        "mode": "Async",
        "parameters": [{"name": "deck", **FILE, "required": True}],
        "result": [{"name": "sorted", **FILE, "mediaType": "text/plain", "required": True}],
    },
    {
        "name": "split",
        "mode": "Async",
        "parameters": [{"name": "deck", **FILE, "required": True}],
        "result": [{"name": "lines", **FILES}, {"name": "count", "type": "integer"}],
    },
    {
        "name": "join",
        "mode": "Async",
        "parameters": [{"name": "decks", **FILES, "required": True}],
        "result": [{"name": "joined", **FILE}],
    },
    {
        "name": "spoil",
        "mode": "Async",
        "parameters": [{"name": "deck", **FILE, "required": True}],
        "result": [{"name": "spoilt", **FILE}],
    },
    {"name": "grow", "mode": "Async", "result": [{"name": "grown", **FILE}]},
    {
        "name": "speak",
        "mode": "Async",
        "parameters": [{"name": "words", "type": "string"}, {"name": "code", "type": "integer", "default": 0}],
    },
    {"name": "chat", "mode": "Async", "parameters": [{"name": "lines", "type": "integer"}]},
    {"name": "count", "mode": "Async", "result": [{"name": "numbers", "type": "array"}]},
    {"name": "nothing", "mode": "Async", "result": [{"name": "deck", **FILE, "required": True}]},
]
COMMANDS = [
    {
        "action": "sort",
        "command": ["sort", "-o", "sorted.txt", "$(deck)"],
        "results": [{"name": "sorted", "file": "sorted.txt"}],
    },
    {
        "action": "split",
        "command": ["sh", "-c", 'mkdir -p parts/deep; split -l 1 "$0" parts/deep/; wc -l <"$0"', "$(deck)"],
        "results": [{"name": "lines", "folder": "parts"}, {"name": "count", "pattern": "([0-9]+)"}],
    },
    {
        "action": "join",
        "command": ["sh", "-c", 'cat "$0"/* >joined', "$(decks)"],
        "results": [{"name": "joined", "file": "joined"}],
    },
    {
        "action": "spoil",
        "command": ["sh", "-c", 'chmod u+w "$0"; echo spoilt >>"$0"; cp "$0" spoilt', "$(deck)"],
        "results": [{"name": "spoilt", "file": "spoilt"}],
    },
    {
        "action": "grow",
        "command": ["truncate", "-s", str(MAX_BYTES + 1), "grown"],
        "results": [{"name": "grown", "file": "grown"}],
    },
    {"action": "speak", "command": ["sh", "-c", 'echo "$0"; exit "$1"', "$(words)", "$(code)"]},
    {"action": "chat", "command": ["sh", "-c", 'seq -f "word %.0f" "$0"; exec sleep 1000', "$(lines)"]},
    {
        "action": "count",
        "command": ["sh", "-c", "seq -s, 20000 | sed 's/^/[/;s/$/]/'"],
        "results": [{"name": "numbers", "json": ""}],
    },
    {"action": "nothing", "command": ["true"], "results": [{"name": "deck", "file": "deck.inp"}]},
]


@pytest.fixture
def file_store(simyard_directory: Path) -> Iterator[FileStore]:
    server = FileStore(simyard_directory / f"operator-files-{secrets.token_hex(4)}")
    server.start()
    yield server
    server.stop(0)


class Study:
    """A pool of one worker that sorts files, in a namespace with a file store."""

    def __init__(self, world: World, catalog: FileCatalog, uid: str, tmp_path: Path) -> None:
        self.world = world
        self._catalog = catalog
        self._uid = uid
        self._tmp_path = tmp_path

    async def start(self) -> None:
        spec = {"interface": {"actions": ACTIONS}, "connector": {"commands": {"actions": COMMANDS}}}
        await self.world.make(names.SIMULATION_SERVICES, SERVICE, spec)
        self.pool = await self.world.make_pool(1, serviceRef={"name": SERVICE})
        await self.world.right(self.pool, 1)

    async def upload(self, content: str) -> Json:
        path = self._tmp_path / "deck.inp"
        path.write_text(content)
        digest = digest_file(path)
        upload = Upload(digest.address, digest.size, name="deck.inp", owner="ada")
        offer = await self._catalog.offer_upload(self._uid, FileOrigin.USER, upload)
        await asyncio.to_thread(upload_file, Transfers(), path, digest, lambda *_: offer, lambda _: None)
        return {"file": digest.address}

    async def download(self, reference: Json) -> str:
        signed = await self._catalog.sign_download(self._uid, reference["file"])
        assert signed is not None
        path = self._tmp_path / secrets.token_hex(4)
        await asyncio.to_thread(Transfers().download, lambda: signed[1], path, reference["file"], lambda _: None)
        return path.read_text()

    def status(self, action: str) -> ServiceActionStatus:
        found = self.world.seen.actions.get(self.world.name, action)
        return found.status if found is not None else ServiceActionStatus()

    async def act(self, action: str, **parameters: Any) -> Json:
        """Call an action, wait for its end, and return the status as the API server has it."""
        name = await self.world.act(self.pool, action, **parameters)
        await self.world.until(lambda: self.status(name).finished_time is not None, f"{action} has ended")
        raw = await self.world.client.get(names.SERVICE_ACTIONS, name, self.world.name)
        return dict(raw["status"])

    async def read_log(self, action: str) -> list[str]:
        """Return the lines of the stored log, without their times."""
        parts = [await self.download(part.to_json()) for part in self.status(action).log]
        return [line.partition(" ")[2] for line in "".join(parts).splitlines()]

    def cached(self) -> list[Path]:
        return sorted(self._tmp_path.glob("cloud-*/*/files/cache/*"))


@pytest.fixture
async def study(
    make_world: Callable[[], Awaitable[World]], file_store: FileStore, tmp_path: Path
) -> AsyncIterator[Study]:
    world = await make_world()
    access = StoreAccess.from_directory(file_store.access)
    namespace = await world.client.get(names.NAMESPACES, world.name, "")
    async with open_catalog(access) as catalog, living(world, files=access) as operator:
        assert catalog is not None
        await world.ready(operator)
        made = Study(world, catalog, namespace["metadata"]["uid"], tmp_path)
        await made.start()
        yield made


async def test_a_file_becomes_a_path_and_a_written_file_becomes_a_result(study: Study) -> None:
    done = await study.act("sort", deck=await study.upload("b\na\n"))
    found = done["result"]["sorted"]
    assert {**found, "file": ""} == {"file": "", "name": "sorted.txt", "bytes": 4, "mediaType": "text/plain"}
    assert await study.download(found) == "a\nb\n"


async def test_a_large_result_is_a_file(study: Study) -> None:
    done = await study.act("count")
    assert done["result"] == {}
    assert done["resultFile"]["bytes"] > 64 * 1024
    assert json.loads(await study.download(done["resultFile"])) == {"numbers": list(range(1, 20_001))}


async def test_results_are_parameters_of_the_next_action_and_folders_are_arrays(study: Study) -> None:
    parts = (await study.act("split", deck=await study.upload("2\n1\n")))["result"]
    assert parts["count"] == 2
    assert [part["name"] for part in parts["lines"]] == ["deep/aa", "deep/ab"]
    joined = (await study.act("join", decks=parts["lines"]))["result"]["joined"]
    assert await study.download(joined) == "2\n1\n"


async def test_an_input_is_downloaded_once_and_a_program_cannot_change_it_for_others(study: Study) -> None:
    deck = await study.upload("b\na\n")
    await study.act("sort", deck=deck)
    (cached,) = study.cached()
    before = cached.stat().st_ino
    await study.act("sort", deck=deck)
    assert [path.stat().st_ino for path in study.cached()] == [before]
    await study.act("spoil", deck=deck)
    done = await study.act("sort", deck=deck)
    assert await study.download(done["result"]["sorted"]) == "a\nb\n"


@pytest.mark.parametrize(
    ("action", "reason", "message"),
    [
        ("sort", "InvalidParameters", "has no file sha256:"),
        ("grow", "ActionFailed", f"result grown: grown has {MAX_BYTES + 1} bytes, at most {MAX_BYTES} are accepted"),
        ("nothing", "ActionFailed", "result deck: the program did not write deck.inp"),
    ],
)
async def test_what_cannot_be_moved_fails_the_action_with_a_reason(
    study: Study, action: str, reason: str, message: str
) -> None:
    parameters = {"deck": {"file": f"sha256:{'0' * 64}"}} if action == "sort" else {}
    failure = (await study.act(action, **parameters))["failure"]
    assert failure["reason"] == reason
    assert message in failure["message"]


async def test_the_log_of_an_action_outlives_its_worker(study: Study) -> None:
    name = await study.world.act(study.pool, "speak", words="hello\nworld")
    await study.world.until(lambda: bool(study.status(name).log), "the log is stored")
    await study.world.delete_pool(study.pool)
    await study.world.until(lambda: not study.world.workers(study.pool), "the workers are gone")
    assert await study.read_log(name) == ["hello", "world"]


async def test_the_log_of_a_failed_action_is_kept(study: Study) -> None:
    name = await study.world.act(study.pool, "speak", words="hello", code=3)
    await study.world.until(lambda: bool(study.status(name).log), "the log is stored")
    await study.world.until(lambda: study.status(name).failure is not None, "the action fails")
    assert await study.read_log(name) == ["hello"]


async def test_the_log_of_a_running_action_is_stored_in_parts(study: Study) -> None:
    name = await study.world.act(study.pool, "chat", lines=40_000)
    await study.world.until(lambda: bool(study.status(name).log), "a part of the log is stored")
    assert study.status(name).finished_time is None
    assert (await study.read_log(name))[:2] == ["word 1", "word 2"]


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[Logs]:
    """The part of the aggregated apiserver that reads logs."""
    directory, broker = Directory(world.client, (world.name,)), BrokerClient(lambda _: None)
    broker.set_access(world.access)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(directory.run()), group.create_task(broker.run())]
        await world.until(lambda: directory.synced and broker.connected, "the apiserver is ready")
        yield Logs(directory, broker, poll_seconds=0.05)
        for task in tasks:
            task.cancel()


async def test_the_log_of_a_running_action_is_followed_until_the_action_ends(study: Study) -> None:
    world = study.world
    name = await world.act(study.pool, "chat", lines=3)
    await world.until(lambda: study.status(name).started_time is not None, "the action runs")
    found = world.seen.actions.get(world.name, name)
    assert found is not None
    call = ResourceCall("get", world.name, names.WORKERS, found.status.worker, ("log",))
    query = {"invocation": get_invocation_id(found), "follow": "true", "after": "0"}
    text = ""
    async with serving(world) as logs, asyncio.timeout(60):
        log = await logs.read(call, query)
        assert isinstance(log, FollowedLog)
        async for part in log.texts:
            text += part
            if "word 3" in part:
                await world.client.patch(names.SERVICE_ACTIONS, name, {"spec": {"cancel": True}}, world.name)
        again = await logs.read(call, {**query, "follow": "false"})
        assert isinstance(again, FollowedLog)
        assert "".join([part async for part in again.texts]) == text, "the worker keeps the log for a while"
    assert [line.partition(" ")[2] for line in text.splitlines()] == ["word 1", "word 2", "word 3"]
    await world.until(lambda: study.status(name).failure is not None, "the action is cancelled")


async def test_a_log_does_not_delay_the_end_of_its_action_while_the_store_is_away(
    study: Study, file_store: FileStore
) -> None:
    file_store.stop(0)
    done = await study.act("speak", words="hello")
    assert "failure" not in done
    assert "log" not in done
    await asyncio.to_thread(file_store.start)


async def test_an_action_waits_for_a_file_store_that_is_away(study: Study, file_store: FileStore) -> None:
    deck = await study.upload("b\na\n")
    file_store.stop(0)
    name = await study.world.act(study.pool, "sort", deck=deck)
    await study.world.until(lambda: "waiting for the file store" in study.status(name).progress, "the action says so")
    await asyncio.to_thread(file_store.start)
    await study.world.until(lambda: is_complete(study.world, name), "the action ends")
    assert study.status(name).attempts == 1


async def test_a_result_above_the_quota_waits_for_space(study: Study) -> None:
    deck = await study.upload("b\na\n")

    async def set_quota(quota: str | None) -> None:
        annotations = {"metadata": {"annotations": {names.ANNOTATION_FILES_QUOTA: quota}}}
        await study.world.client.patch(names.NAMESPACES, study.world.name, annotations)

    await set_quota("1")
    name = await study.world.act(study.pool, "sort", deck=deck)
    await study.world.until(lambda: "exceeded the quota" in study.status(name).progress, "the action says so")
    await set_quota(None)
    await study.world.until(lambda: is_complete(study.world, name), "the action ends")
    assert study.status(name).attempts == 1


async def test_without_a_file_store_the_action_says_who_can_help(make_world: Callable[[], Awaitable[World]]) -> None:
    world = await make_world()
    async with living(world) as operator:
        await world.ready(operator)
        spec = {"interface": {"actions": ACTIONS}, "connector": {"commands": {"actions": COMMANDS}}}
        await world.make(names.SIMULATION_SERVICES, SERVICE, spec)
        pool = await world.make_pool(1, serviceRef={"name": SERVICE})
        name = await world.act(pool, "sort", deck={"file": f"sha256:{'0' * 64}"})

        def has_failed() -> bool:
            found = world.seen.actions.get(world.name, name)
            return found is not None and found.status.failure is not None

        await world.until(has_failed, "the action fails")
        failed = world.seen.actions.get(world.name, name)
        assert failed is not None and failed.status.failure is not None
        assert "the platform team sets files.mode of the chart" in failed.status.failure.message
