# SPDX-License-Identifier: Apache-2.0
"""The files of a worker's actions: parameters are downloaded before an action runs, results are uploaded after it.

The log of an Async action is uploaded as well, so that it outlives the worker.

The worker asks the control plane for signed URLs over the broker, and moves the bytes straight between its disk and the
file store. It asks when it needs a URL. So no URL waits in a queue or on a disk, and a URL that has expired is replaced
by asking again. A question or an answer may be lost, so a question without an answer is repeated. While the file store
does not answer, the action waits, up to its timeout. So a finished computation is not lost with the store.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import shutil
import time
import uuid
from pathlib import Path
from typing import Any, Awaitable, Callable, Iterable, Mapping, Optional, TypeVar
from weakref import WeakValueDictionary

from simyard_adapter.backend import Backend, run_in_thread
from simyard_adapter.backoff import draw_delay
from simyard_adapter.bootstrap import Bootstrap
from simyard_adapter.context import Context
from simyard_adapter.current_session import CurrentSession
from simyard_adapter.deadline import within
from simyard_adapter.declarations import ActionMode, Json, Value, ValueType
from simyard_adapter.digests import digest_file
from simyard_adapter.errors import ActionCancelledError, ActionError, FileTransferError, ParameterError
from simyard_adapter.file_cache import FileCache, link_file
from simyard_adapter.file_values import FileReference, is_name
from simyard_adapter.invocations import ActionRequest
from simyard_adapter.logs import ActionLog
from simyard_adapter.transfers import SignedRequest, StalledError, TransferError, Transfers
from simyard_adapter.transport import UnroutableError, encode
from simyard_adapter.uploads import UploadOffer, upload_file
from simyard_adapter.wire import EVENTS_EXCHANGE, Event, make_event_key

ANSWER_SECONDS = 10.0
"""The time after which a question without an answer is repeated."""
MAX_RETRY_SECONDS = 15.0
LOG_SECONDS = 15.0
STOPPED_LOG_SECONDS = 2.0
"""The time for the upload of a log; less after a stop, because a stopped action must end soon."""
NO_STORE_SECONDS = 3600.0
"""The time for which no log is uploaded after the platform has said that it has no file store."""
MAX_FOLDER_FILES = 1000
MAX_PARALLEL_FILES = 4
INPUTS = "inputs"
"""The folder below an action's scratch directory with the files of the parameters, a folder for each parameter."""
_POLL_SECONDS = 0.5
T = TypeVar("T")


class WorkerFiles:
    """The files of the actions of one worker; used in the event loop of its adapter."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        backend: Backend,
        directory: Path,
        current: CurrentSession,
        *,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """Prepare; ``directory`` is for files alone, and ``backend`` runs the actions."""
        self._bootstrap = bootstrap
        self._backend = backend
        self._directory = directory
        shutil.rmtree(directory / "logs", ignore_errors=True)  # of an adapter that was killed
        self._cache = FileCache(directory / "cache")
        self._no_store_until = 0.0
        self._current = current
        self._answer_seconds = answer_seconds
        self._waiting: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._downloads: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._slots = asyncio.Semaphore(MAX_PARALLEL_FILES)

    async def invoke(self, context: Context, request: ActionRequest) -> Mapping[str, Json]:
        """Download the files of the parameters, run the action, and upload the files of the result.

        Raises:
            ParameterError: The namespace has no such file, or the file is too large.
            ActionError: The program did not write a file, or the file is too large.
            FileTransferError: A file cannot be downloaded or uploaded.
            ActionCancelledError: The invocation was stopped meanwhile.
        """
        if request.mode is not ActionMode.ASYNC or time.monotonic() < self._no_store_until:
            return await self._invoke(context, request)
        log = ActionLog(self._directory / "logs" / uuid.uuid4().hex)
        context.log_copy = log.append
        try:
            return await self._invoke(context, request)
        finally:
            context.log_copy = None
            context.stored_log = await self._upload_log(context, log)

    async def _invoke(self, context: Context, request: ActionRequest) -> Mapping[str, Json]:
        action = request.action
        parameters: Mapping[str, Any] = request.parameters
        if any(item.holds_files for item in action.parameters):
            parameters = await self._download_parameters(context, parameters, action.parameters)
        result = await self._backend.invoke(context, parameters)
        if any(item.holds_files for item in action.result):
            return await self._upload_results(context, result, action.result)
        return result

    def apply_answer(self, body: Mapping[str, Any]) -> None:
        """Hand the control plane's answer to the question that waits for it; drop an answer that comes too late."""
        waiting = self._waiting.get(str(body.get("request")))
        if waiting is not None and not waiting.done():
            waiting.set_result(body)

    async def _download_parameters(
        self, context: Context, parameters: Mapping[str, Json], declared: Iterable[Value]
    ) -> dict[str, Any]:
        """Return the parameters with the path of the downloaded file in place of each reference."""
        values: dict[str, Any] = dict(parameters)
        for item in declared:
            value = values.get(item.name)
            if not item.holds_files or value is None:
                continue
            path = f"parameters.{item.name}"
            if item.type is ValueType.FILE:
                download: Awaitable[Any] = self._download(context, item, value, path)
            else:
                download = _gather(self._download(context, item, each, f"{path}[{i}]") for i, each in enumerate(value))
            values[item.name] = await _until_stopped(context, download)
        return values

    async def _upload_results(
        self, context: Context, result: Mapping[str, Any], declared: Iterable[Value]
    ) -> Mapping[str, Json]:
        """Return the result with a reference in place of each path; a folder becomes the files below it."""
        values: dict[str, Any] = dict(result)
        for item in declared:
            value = values.get(item.name)
            if not item.holds_files or value is None:
                continue
            if item.type is ValueType.FILE:
                upload: Awaitable[Any] = self._upload(context, item, value)
            else:
                found = _list_results(item, value, context.directory)
                upload = _gather(self._upload(context, item, path, name) for path, name in found)
            values[item.name] = await _until_stopped(context, upload)
        return values

    async def _download(self, context: Context, declared: Value, value: Json, field: str) -> Path:
        reference = FileReference.from_json(value)
        # One download per address at a time: the others find the file in the cache.
        turn = self._downloads.setdefault(reference.address, asyncio.Lock())
        async with turn, self._slots:
            cached = self._cache.find(reference.address)
            answer: Mapping[str, Any] = {}
            if cached is None or not reference.name:
                answer = await self._ask(context, {"get": reference.address}, field)
            described = answer.get("spec") or {}
            size = int(described.get("bytes") or reference.size or 0)
            if declared.max_bytes is not None and size > declared.max_bytes:
                raise ParameterError(field, f"has {size} bytes, at most {declared.max_bytes} are accepted")
            if cached is None:
                cached = await self._fetch(context, reference.address, answer, field)
            name = (reference.name or str(described.get("name") or "")).rpartition("/")[2]
            folder = context.directory / INPUTS / declared.name
            source = cached
            return await run_in_thread(
                lambda: link_file(source, folder, name if name and is_name(name) else declared.name)
            )

    async def _fetch(self, context: Context, address: str, answer: Mapping[str, Any], field: str) -> Path:
        path, first = self._cache.choose_path(address), [answer]
        loop = asyncio.get_running_loop()

        def get_request() -> SignedRequest:
            answer = first.pop() if first else self._ask_from_thread(loop, context, {"get": address}, field)
            return SignedRequest.from_json(answer["status"]["download"])

        def download() -> None:
            transfers = Transfers(answer.get("caCertificate"))
            transfers.download(get_request, path, address, lambda _: context.check_cancelled())

        await self._transfer(context, download, field)
        return await run_in_thread(lambda: self._cache.add(address))

    async def _upload(self, context: Context, declared: Value, value: Any, name: str = "") -> Any:
        if not isinstance(value, Path):  # A reference, such as that of a parameter.
            return value
        path = context.directory / value
        if not path.is_file():
            raise ActionError(f"result {declared.name}: the program did not write the file {path.name}")
        size = path.stat().st_size
        if declared.max_bytes is not None and size > declared.max_bytes:
            raise ActionError(
                f"result {declared.name}: {path.name} has {size} bytes, at most {declared.max_bytes} are accepted"
            )
        async with self._slots:
            return await self._upload_file(context, path, name or path.name, declared.media_type)

    async def _upload_file(self, context: Context, path: Path, name: str, media_type: str = "") -> dict[str, Any]:
        """Upload one file, unless the store has its content, and return the reference to it."""
        loop, certificate = asyncio.get_running_loop(), [None]
        digest = await run_in_thread(lambda: digest_file(path, lambda _: context.check_cancelled()))
        spec: dict[str, Any] = {"address": digest.address, "bytes": digest.size, "name": name.rpartition("/")[2]}
        if media_type:
            spec["mediaType"] = media_type
        if digest.in_parts:
            spec["parts"] = [part.hex() for part in digest.parts]

        def get_offer(upload_id: str, first_part: int) -> UploadOffer:
            more = {"uploadId": upload_id, "firstPart": first_part} if upload_id else {}
            answer = self._ask_from_thread(loop, context, {"put": {**spec, **more}}, f"result file {name}")
            certificate[0] = answer.get("caCertificate")
            return UploadOffer.from_json(answer["status"])

        def upload() -> None:
            first = get_offer("", 1)
            offers = [first]
            transfers = Transfers(certificate[0])
            upload_file(
                transfers,
                path,
                digest,
                lambda upload_id, part: offers.pop() if offers else get_offer(upload_id, part),
                lambda _: context.check_cancelled(),
            )

        await self._transfer(context, upload, f"result file {name}")
        return FileReference(digest.address, name, digest.size, media_type).to_json()

    async def _upload_log(self, context: Context, log: ActionLog) -> Optional[Mapping[str, Any]]:
        """Upload the log of an action, and return the reference to it; None without lines, or if that fails.

        The upload has little time: a result must not wait for a log.
        """
        seconds = LOG_SECONDS if context.stopped is None else STOPPED_LOG_SECONDS
        uploading = Context("", context.action, log.path.parent, lambda _: None, lambda _: None)
        try:
            if not log.lines:
                return None
            uploaded = self._upload_file(uploading, log.path, f"{context.action}.log", "text/plain")
            return await within(seconds, uploaded)
        except (asyncio.TimeoutError, ActionError, ActionCancelledError, OSError):
            return None
        finally:
            uploading.cancel()
            log.path.unlink(missing_ok=True)

    async def _transfer(self, context: Context, transfer: Callable[[], None], what: str) -> None:
        """Run a transfer in a thread; repeat it while the store does not answer."""
        failures = 0
        while True:
            try:
                return await run_in_thread(transfer)
            except StalledError as error:
                context.progress(message=f"{what}: waiting for the file store: {error}")
                await asyncio.sleep(draw_delay(failures, MAX_RETRY_SECONDS))
                context.check_cancelled()
                failures += 1
            except (TransferError, ValueError, KeyError, TypeError, OSError) as error:
                raise FileTransferError(f"{what}: {error}") from error

    def _ask_from_thread(
        self, loop: asyncio.AbstractEventLoop, context: Context, question: Mapping[str, Any], field: str
    ) -> Mapping[str, Any]:
        asked = asyncio.run_coroutine_threadsafe(self._ask(context, question, field), loop)
        try:
            while True:
                context.check_cancelled()
                with contextlib.suppress(concurrent.futures.TimeoutError):
                    return asked.result(timeout=_POLL_SECONDS)
        finally:
            asked.cancel()

    async def _ask(self, context: Context, question: Mapping[str, Any], field: str) -> Mapping[str, Any]:
        """Return the control plane's answer to a question; repeat the question while there is none.

        Raises:
            ParameterError: The namespace has no such file.
            FileTransferError: The platform refuses.
        """
        failures = 0
        while True:
            answer = await self._ask_once(question)
            error = answer.get("error")
            if not isinstance(error, Mapping):
                return answer
            message = str(error.get("message"))
            if error.get("absent"):
                self._no_store_until = time.monotonic() + NO_STORE_SECONDS
            if not error.get("retryable"):
                raise ParameterError(field, message) if "get" in question else FileTransferError(f"{field}: {message}")
            context.progress(message=f"{field}: waiting for the file store: {message}")
            await asyncio.sleep(draw_delay(failures, MAX_RETRY_SECONDS))
            failures += 1

    async def _ask_once(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        request = uuid.uuid4().hex
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[request] = answer
        try:
            while not answer.done():
                with contextlib.suppress(UnroutableError):
                    await self._publish_question({"request": request, **question})
                await asyncio.wait({answer}, timeout=self._answer_seconds)
            return answer.result()
        finally:
            del self._waiting[request]

    async def _publish_question(self, question: Mapping[str, Any]) -> None:
        key = make_event_key(Event.FILES, self._bootstrap.broker.identity, self._bootstrap.worker_uid)
        body = encode({"worker": self._bootstrap.worker, **question})
        await self._current.publish(EVENTS_EXCHANGE, key, Event.FILES.value, body)


async def _until_stopped(context: Context, operation: Awaitable[T]) -> T:
    """Await an operation; cancel it when the invocation is stopped.

    Raises:
        ActionCancelledError: The invocation was stopped.
    """
    task, loop = asyncio.ensure_future(operation), asyncio.get_running_loop()
    try:
        with context.stopping(lambda: loop.call_soon_threadsafe(task.cancel)):
            await asyncio.wait({task})
    finally:
        task.cancel()
    if task.cancelled():
        context.check_cancelled()
    return task.result()


async def _gather(operations: Iterable[Awaitable[T]]) -> list[T]:
    """Await all operations, and return their results in order; an error cancels the others."""
    tasks = [asyncio.ensure_future(operation) for operation in operations]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


def _list_results(declared: Value, value: Any, directory: Path) -> list[tuple[Any, str]]:
    """Return the files of a result that is a list of paths or the path of a folder, each with its name.

    Raises:
        ActionError: The value is neither, or the folder has too many files.
    """
    if isinstance(value, (list, tuple)):
        return [(item, "") for item in value]
    folder = directory / value
    if not folder.is_dir():
        raise ActionError(f"result {declared.name}: the program did not make the folder {folder.name}")
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    if len(found) > MAX_FOLDER_FILES:
        raise ActionError(
            f"result {declared.name}: the folder {folder.name} has {len(found)} files, at most {MAX_FOLDER_FILES} are"
            " accepted: let the program put them into an archive"
        )
    return [(path, path.relative_to(folder).as_posix()) for path in found]
