# SPDX-License-Identifier: Apache-2.0
"""Files of actions on a worker whose disk, cache or program misbehaves."""

import asyncio
import os
import resource
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from small_store import SmallStore, small_store

from simyard_adapter.context import Context
from simyard_adapter.declarations import Action, ActionMode
from simyard_adapter.errors import ActionCancelledError, ActionError, FileTransferError, ParameterError
from simyard_adapter.file_cache import FileCache
from simyard_adapter.invocations import ActionRequest
from simyard_adapter.worker_files import MAX_FOLDER_FILES, WorkerFiles

DEADLINE = 20.0
MIB = 2**20
MAX_BYTES = 4 * MIB
ACTION = Action.from_json(
    {
        "name": "solve",
        "parameters": [{"name": "deck", "type": "file", "maxBytes": MAX_BYTES}],
        "result": [
            {"name": "field", "type": "file"},
            {"name": "frames", "type": "array", "items": {"type": "file"}},
        ],
    }
)


class Platform:
    """The control plane: it answers at once, and finds each uploaded file present."""

    has_store = True

    def __init__(self, store: SmallStore) -> None:
        self._store = store
        self.on_question: Callable[[], object] = lambda: None
        self.offered: list[Mapping[str, Any]] = []

    async def ask(self, _: Context, question: Mapping[str, Any], __: str) -> Mapping[str, Any]:
        return self.ask_from_thread(None, _, question, __)

    def ask_from_thread(self, _: Any, __: Context, question: Mapping[str, Any], ___: str) -> Mapping[str, Any]:
        self.on_question()
        if "put" in question:
            self.offered.append(question["put"])
            return {"status": {"present": True}}
        content = self._store.files[question["get"]]
        signed = self._store.sign_download(question["get"])
        return {"spec": {"bytes": len(content), "name": "deck.inp"}, "status": {"present": True, "download": signed}}


class Program:
    """The connector: ``run`` is what the action does."""

    def __init__(self) -> None:
        self.run: Callable[[Context, Path], Mapping[str, Any]] = lambda _, __: {}

    async def invoke(self, context: Context, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        return await asyncio.to_thread(self.run, context, parameters.get("deck", Path()))


class Worker:
    """A worker with an empty cache."""

    def __init__(self, store: SmallStore, directory: Path) -> None:
        self.platform = Platform(store)
        self.program = Program()
        self.cache = directory / "cache"
        self.scratch = directory / "scratch"
        self.files = WorkerFiles(self.platform, self.program, self.cache)  # type: ignore[arg-type]

    async def act(self, deck: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        context = Context("id", "solve", self.scratch / uuid.uuid4().hex, lambda _: None, lambda _: None)
        parameters = {"deck": deck} if deck else {}
        return await self.files.invoke(context, ActionRequest(ACTION, parameters, ActionMode.SYNC, 30))


@pytest.fixture
def store() -> Iterator[SmallStore]:
    with small_store() as made:
        yield made


@pytest.fixture
async def worker(store: SmallStore, tmp_path: Path) -> Worker:
    return Worker(store, tmp_path)


async def test_a_file_that_leaves_the_cache_before_its_link_is_downloaded_again(
    store: SmallStore, worker: Worker
) -> None:
    deck = {"file": store.add(b"deck")}
    read = []
    worker.program.run = lambda _, path: read.append(path.read_bytes()) or {}  # type: ignore[func-returns-value]
    await worker.act(deck)

    def empty_cache() -> None:
        shutil.rmtree(worker.cache)
        worker.platform.on_question = lambda: None

    worker.platform.on_question = empty_cache
    await worker.act(deck)
    assert read == [b"deck", b"deck"]


async def test_a_stopped_action_leaves_no_download_behind(store: SmallStore, worker: Worker) -> None:
    store.silent = True
    context = Context("id", "solve", worker.scratch, lambda _: None, lambda _: None)
    request = ActionRequest(ACTION, {"deck": {"file": store.add(b"deck")}}, ActionMode.SYNC, 30)
    action = asyncio.ensure_future(worker.files.invoke(context, request))
    await asyncio.to_thread(store.asked.wait)
    await asyncio.to_thread(context.cancel)
    with pytest.raises(ActionCancelledError):
        await action
    async with asyncio.timeout(DEADLINE):  # shorter than the 30 s after which a silent connection counts as lost
        while list(worker.cache.glob(".*.part")):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_disk_without_space_for_the_copy_of_an_input_fails_with_the_reason(
    store: SmallStore, worker: Worker
) -> None:
    deck = {"file": store.add(bytes(2 * MIB))}
    await worker.act(deck)
    elsewhere = Path("/dev/shm") / uuid.uuid4().hex
    worker.scratch = elsewhere
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))  # stands for a full disk: a write fails with OSError
    try:
        with pytest.raises(FileTransferError, match=r"^parameters.deck: File too large"):
            await worker.act(deck)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        shutil.rmtree(elsewhere)


async def test_a_result_that_cannot_be_read_fails_with_the_reason(worker: Worker) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def run(context: Context, _: Path) -> Mapping[str, Any]:
        (context.directory / "field.vtu").write_text("field")
        free = os.open(os.devnull, os.O_RDONLY)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))  # no further file can be opened
        return {"field": Path("field.vtu")}

    worker.program.run = run
    try:
        with pytest.raises(FileTransferError, match=r"^result field: Too many open files"):
            await worker.act()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_cached_input_with_a_name_has_the_limit_of_its_size_too(store: SmallStore, worker: Worker) -> None:
    deck = {"file": store.add(bytes(MAX_BYTES + 1)), "name": "deck.inp"}
    cache = FileCache(worker.cache)
    cache.choose_path(deck["file"]).write_bytes(bytes(MAX_BYTES + 1))
    cache.add(deck["file"])
    with pytest.raises(ParameterError, match=f"has {MAX_BYTES + 1} bytes, at most {MAX_BYTES} are accepted"):
        await worker.act(deck)


async def test_a_folder_with_too_many_files_fails_with_the_limit(worker: Worker) -> None:
    def run(context: Context, _: Path) -> Mapping[str, Any]:
        (context.directory / "frames/deep").mkdir(parents=True)
        for number in range(MAX_FOLDER_FILES + 1):
            (context.directory / f"frames/deep/{number}").touch()
        return {"frames": Path("frames")}

    worker.program.run = run
    with pytest.raises(ActionError, match="frames has more than 1000 files: let the program put them into an archive"):
        await worker.act()


async def test_a_folder_becomes_its_files_without_symbolic_links(worker: Worker) -> None:
    def run(context: Context, _: Path) -> Mapping[str, Any]:
        (context.directory / "frames/deep").mkdir(parents=True)
        for name in ("b", "a", "deep/c"):
            (context.directory / "frames" / name).write_text(name)
        (context.directory / "frames/link").symlink_to("/etc/passwd")
        (context.directory / "frames/loop").symlink_to("/")
        return {"frames": Path("frames")}

    worker.program.run = run
    assert [item["name"] for item in (await worker.act())["frames"]] == ["a", "b", "deep/c"]


async def test_a_connector_uploads_a_file_for_an_attribute(worker: Worker) -> None:
    uploaded: list[Mapping[str, Any]] = []

    def run(context: Context, _: Path) -> Mapping[str, Any]:
        (context.directory / "preview.png").write_bytes(b"png")
        uploaded.append(context.upload(Path("preview.png"), "image/png"))
        return {}

    worker.program.run = run
    await worker.act()
    (offered,) = worker.platform.offered
    expected = {"file": offered["address"], "name": "preview.png", "bytes": 3, "mediaType": "image/png"}
    assert uploaded == [expected]


async def test_an_upload_in_the_event_loop_is_refused_instead_of_waiting_for_itself(worker: Worker) -> None:
    class Loop:
        async def invoke(self, context: Context, _: Mapping[str, Any]) -> Mapping[str, Any]:
            context.upload(Path("preview.png"))
            return {}

    files = WorkerFiles(worker.platform, Loop(), worker.cache)  # type: ignore[arg-type]
    context = Context("id", "solve", worker.scratch, lambda _: None, lambda _: None)
    with pytest.raises(RuntimeError, match=r"asyncio\.to_thread"):
        await files.invoke(context, ActionRequest(ACTION, {}, ActionMode.SYNC, 30))
