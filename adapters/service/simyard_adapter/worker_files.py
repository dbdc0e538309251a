# SPDX-License-Identifier: Apache-2.0
"""The files of a worker's actions: parameters are downloaded before an action runs, results are uploaded after it.

The worker moves the bytes straight between its disk and the file store, with signed URLs
(:mod:`simyard_adapter.file_questions`). While the file store does not answer, the action waits, up to its timeout. So a
finished computation is not lost with the store. A file at a URL comes from a server of other people
(:mod:`simyard_adapter.url_downloads`): a server that does not answer fails the action.

A transfer runs in a thread. Every error of the disk fails the action with the name of the parameter or result.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import os
import threading
import uuid
from pathlib import Path
from typing import Any, Awaitable, Callable, Iterable, Iterator, Mapping, Optional, TypeVar
from weakref import WeakValueDictionary

from simyard_adapter.backend import Backend, run_in_thread
from simyard_adapter.backoff import draw_delay
from simyard_adapter.context import Context
from simyard_adapter.declarations import Json, Value, ValueType
from simyard_adapter.digests import MAX_FILE_BYTES, FileDigest, digest_file
from simyard_adapter.errors import ActionError, FileTransferError, ParameterError
from simyard_adapter.file_cache import FileCache, link_file
from simyard_adapter.file_questions import MAX_RETRY_SECONDS, FileQuestions
from simyard_adapter.file_urls import AllowedUrls, describe_url
from simyard_adapter.file_values import FileReference, is_name
from simyard_adapter.invocations import ActionRequest
from simyard_adapter.transfers import ExpiredError, SignedRequest, StalledError, TransferError, Transfers
from simyard_adapter.uploads import UploadOffer, upload_file
from simyard_adapter.url_downloads import TooLargeError, UrlDownload

MAX_FOLDER_FILES = 1000
MAX_PARALLEL_FILES = 4
MAX_LINK_ATTEMPTS = 3
"""The largest number of downloads of a file that is gone from the cache before the action gets it."""
INPUTS = "inputs"
"""The folder below an action's scratch directory with the files of the parameters, a folder for each parameter."""
T = TypeVar("T")


class WorkerFiles:
    """The files of the actions of one worker; used in the event loop of its adapter."""

    def __init__(self, questions: FileQuestions, backend: Backend, directory: Path) -> None:
        """Prepare; ``directory`` is for the cache alone, and ``backend`` runs the actions."""
        self._questions = questions
        self._backend = backend
        self._cache = FileCache(directory)
        self._downloads: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._slots = asyncio.Semaphore(MAX_PARALLEL_FILES)
        self._loop_thread = threading.get_ident()

    async def invoke(self, context: Context, request: ActionRequest) -> Mapping[str, Json]:
        """Download the files of the parameters, run the action, and upload the files of the result.

        Raises:
            ParameterError: The namespace has no such file, or the file is too large.
            ActionError: The program did not write a file, or the file is too large.
            FileTransferError: A file cannot be downloaded or uploaded.
            ActionCancelledError: The invocation was stopped meanwhile.
        """
        action, loop = request.action, asyncio.get_running_loop()
        context.upload_file = lambda path, media_type: self._upload_from_thread(loop, context, path, media_type)
        parameters: Mapping[str, Any] = request.parameters
        if any(item.holds_files for item in action.parameters):
            parameters = await self._download_parameters(context, parameters, action.parameters, request.urls)
        result = await self._backend.invoke(context, parameters)
        if any(item.holds_files for item in action.result):
            return await self._upload_results(context, result, action.result)
        return result

    async def _download_parameters(
        self, context: Context, parameters: Mapping[str, Json], declared: Iterable[Value], urls: AllowedUrls
    ) -> dict[str, Any]:
        """Return the parameters with the path of the downloaded file in place of each reference."""
        values: dict[str, Any] = dict(parameters)
        for item in declared:
            value = values.get(item.name)
            if not item.holds_files or value is None:
                continue
            path = f"parameters.{item.name}"
            if item.type is ValueType.FILE:
                download: Awaitable[Any] = self._download(context, item, value, path, urls)
            else:
                each = enumerate(value)
                download = _gather(self._download(context, item, one, f"{path}[{i}]", urls) for i, one in each)
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
                found = await _use_disk(f"result {item.name}", _list_results, item, value, context)
                upload = _gather(self._upload(context, item, path, name) for path, name in found)
            values[item.name] = await _until_stopped(context, upload)
        return values

    async def _download(self, context: Context, declared: Value, value: Json, field: str, urls: AllowedUrls) -> Path:
        """Return the path of a file of a parameter, in the folder of the parameter."""
        reference = FileReference.from_json(value, urls)
        folder = context.directory / INPUTS / declared.name
        if reference.url:
            return await self._download_url(context, declared, reference, field, urls, folder)
        # One download per address at a time: the others find the file in the cache.
        turn = self._downloads.setdefault(reference.address, asyncio.Lock())
        async with turn, self._slots:
            with self._cache.holding(reference.address):
                for _ in range(MAX_LINK_ATTEMPTS):
                    cached, name = await self._provide(context, declared, reference, field)
                    linked = await _use_disk(field, _link_if_present, cached, folder, name)
                    if linked is not None:
                        return linked
        raise FileTransferError(f"{field}: {reference.address} was deleted from the cache of the worker several times")

    async def _provide(
        self, context: Context, declared: Value, reference: FileReference, field: str
    ) -> tuple[Path, str]:
        """Return the path of a file in the cache, and the name under which the action gets it."""
        cached = await _use_disk(field, self._cache.find, reference.address)
        size = 0 if cached is None else await _measure(field, cached)
        answer: Mapping[str, Any] = {}
        if cached is None or not reference.name:
            answer = await self._questions.ask(context, {"get": reference.address}, field)
        described = answer.get("spec") or {}
        size = size or int(described.get("bytes") or reference.size or 0)
        if declared.max_bytes is not None and size > declared.max_bytes:
            raise ParameterError(field, f"has {size} bytes, at most {declared.max_bytes} are accepted")
        if cached is None:
            cached = await self._fetch(context, reference.address, answer, field)
        return cached, _choose_name(reference.name or str(described.get("name") or ""), declared)

    async def _fetch(self, context: Context, address: str, answer: Mapping[str, Any], field: str) -> Path:
        path = await _use_disk(field, self._cache.choose_path, address)
        first, loop = [answer], asyncio.get_running_loop()

        def get_request() -> SignedRequest:
            ask = self._questions.ask_from_thread
            answer = first.pop() if first else ask(loop, context, {"get": address}, field)
            return SignedRequest.from_json(answer["status"]["download"])

        def report(error: StalledError) -> None:
            context.progress(message=f"{field}: waiting for the file store: {error}")

        def download() -> Path:
            transfers = Transfers(answer.get("caCertificate"))
            with context.stopping(transfers.stop):
                transfers.download(get_request, path, address, lambda _: context.check_cancelled(), report)
            return self._cache.add(address)

        return await self._transfer(context, download, field)

    async def _download_url(
        self, context: Context, declared: Value, reference: FileReference, field: str, urls: AllowedUrls, folder: Path
    ) -> Path:
        """Return the path of a file that was at a URL; the log of the action gets its address and size."""
        partial = await _use_disk(field, self._cache.choose_path, f".{uuid.uuid4().hex}.part")
        transfers, sizes = Transfers(), (declared.max_bytes, reference.size, MAX_FILE_BYTES)
        download = UrlDownload(transfers, reference.url, urls, min(size for size in sizes if size is not None))

        def run() -> FileDigest:
            with context.stopping(transfers.stop):
                return download.run(partial, lambda _: context.check_cancelled())

        try:
            async with self._slots:
                digest = await run_in_thread(run)
            context.log(f"{field}: {describe_url(reference.url)} has {digest.size} bytes, {digest.address}")
            if reference.size not in (None, digest.size):
                raise ParameterError(field, f"has {digest.size} bytes, and not {reference.size}")
            turn = self._downloads.setdefault(digest.address, asyncio.Lock())
            async with turn:
                with self._cache.holding(digest.address):
                    cached = await _use_disk(field, self._cache.adopt, partial, digest.address)
                    name = _choose_name(reference.name or reference.url.partition("?")[0], declared)
                    return await _use_disk(field, link_file, cached, folder, name)
        except TooLargeError as error:
            raise ParameterError(field, str(error)) from None
        except (TransferError, OSError) as error:
            context.check_cancelled()
            raise FileTransferError(f"{field}: {error}") from error
        finally:
            partial.unlink(missing_ok=True)

    async def _upload(self, context: Context, declared: Value, value: Any, name: str = "") -> Any:
        if not isinstance(value, Path):  # A reference, such as that of a parameter.
            return value
        path, what = context.directory / value, f"result {declared.name}"
        if not path.is_file():
            raise ActionError(f"{what}: the program did not write the file {path.name}")
        size = await _measure(what, path)
        if declared.max_bytes is not None and size > declared.max_bytes:
            raise ActionError(f"{what}: {path.name} has {size} bytes, at most {declared.max_bytes} are accepted")
        async with self._slots:
            return await self.upload_file(context, path, name or path.name, declared.media_type, what)

    async def upload_file(
        self, context: Context, path: Path, name: str, media_type: str, what: str
    ) -> Mapping[str, Any]:
        """Upload one file, unless the store has its content, and return the reference to it.

        Raises:
            FileTransferError: The file cannot be read, or the store or the platform refuses it; ``what`` names it.
            ActionCancelledError: The invocation of the context was stopped meanwhile.
        """
        digest = await _use_disk(what, digest_file, path, lambda _: context.check_cancelled())
        await self._send(context, path, digest, name.rpartition("/")[2], media_type, what)
        return FileReference(digest.address, name, digest.size, media_type).to_json()

    def _upload_from_thread(
        self, loop: asyncio.AbstractEventLoop, context: Context, path: Path, media_type: str
    ) -> Mapping[str, Any]:
        if threading.get_ident() == self._loop_thread:
            raise RuntimeError("the upload of a file blocks: an async action calls it with asyncio.to_thread")
        upload = self.upload_file(context, path, path.name, media_type, path.name)
        return asyncio.run_coroutine_threadsafe(_until_stopped(context, upload), loop).result()

    async def _send(
        self, context: Context, path: Path, digest: FileDigest, name: str, media_type: str, what: str
    ) -> None:
        loop, certificate = asyncio.get_running_loop(), [None]
        spec: dict[str, Any] = {"address": digest.address, "bytes": digest.size, "name": name}
        if media_type:
            spec["mediaType"] = media_type
        if digest.in_parts:
            spec["parts"] = [part.hex() for part in digest.parts]

        def get_offer(upload_id: str, first_part: int) -> UploadOffer:
            more = {"uploadId": upload_id, "firstPart": first_part} if upload_id else {}
            answer = self._questions.ask_from_thread(loop, context, {"put": {**spec, **more}}, what)
            certificate[0] = answer.get("caCertificate")
            return UploadOffer.from_json(answer["status"])

        def upload() -> None:
            offers = [get_offer("", 1)]
            transfers = Transfers(certificate[0])
            with context.stopping(transfers.stop):
                upload_file(
                    transfers,
                    path,
                    digest,
                    lambda upload_id, part: offers.pop() if offers else get_offer(upload_id, part),
                    lambda _: context.check_cancelled(),
                )

        await self._transfer(context, upload, what)

    async def upload_part(self, invocation: str, path: Path, summary: Mapping[str, Any]) -> bool:
        """Upload the table of a chunk of a study; return False if the store has one already.

        Raises:
            FileTransferError: The platform or the store refuses the table.
        """
        what, loop = "the table of the chunk", asyncio.get_running_loop()
        context = Context(invocation, "", path.parent, lambda _: None, lambda _: None)
        digest = await _use_disk(what, digest_file, path)
        question = {"invocation": invocation, "address": digest.address, "bytes": digest.size, "summary": dict(summary)}

        def upload() -> bool:
            while True:
                answer = self._questions.ask_from_thread(loop, context, {"part": question}, what)
                if answer["status"].get("inline"):  # the platform has no file store
                    inline = {"part": {**question, "content": base64.b64encode(path.read_bytes()).decode()}}
                    return bool(self._questions.ask_from_thread(loop, context, inline, what)["status"].get("stored"))
                offer = UploadOffer.from_json(answer["status"])
                if offer.present:
                    return False
                transfers = Transfers(answer.get("caCertificate"))
                with contextlib.suppress(ExpiredError), context.stopping(transfers.stop):
                    return bool(transfers.upload(offer.requests[0], path, lambda _: None))

        try:
            return await self._transfer(context, upload, what)
        finally:
            context.cancel()

    async def _transfer(self, context: Context, transfer: Callable[[], T], what: str) -> T:
        """Run a transfer in a thread, and return its result; repeat it while the store does not answer."""
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
                context.check_cancelled()
                raise FileTransferError(f"{what}: {error}") from error


async def _use_disk(what: str, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that uses the disk, in a thread, and return its result.

    Raises:
        FileTransferError: The disk is full or broken, or a file is gone; ``what`` names the parameter or result.
    """
    try:
        return await run_in_thread(lambda: function(*arguments))
    except OSError as error:
        raise FileTransferError(f"{what}: {error.strerror or error}") from error


async def _measure(what: str, path: Path) -> int:
    """Return the size of a file in bytes; errors as for :func:`_use_disk`."""
    return (await _use_disk(what, path.stat)).st_size


def _choose_name(path: str, declared: Value) -> str:
    """Return the last part of a path, or the name of the parameter if the part is no name of a file."""
    name = path.rpartition("/")[2]
    return name if name and is_name(name) else declared.name


def _link_if_present(source: Path, folder: Path, name: str) -> Optional[Path]:
    """Return the path of the link to a file; None if the file is gone."""
    try:
        return link_file(source, folder, name)
    except FileNotFoundError:
        if source.exists():
            raise
        return None


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


def _list_results(declared: Value, value: Any, context: Context) -> list[tuple[Any, str]]:
    """Return the files of a result that is a list of paths or the path of a folder, each with its name.

    Raises:
        ActionError: The value is neither, or the folder has too many files.
        ActionCancelledError: The invocation was stopped meanwhile.
    """
    if isinstance(value, (list, tuple)):
        return [(item, "") for item in value]
    folder = context.directory / value
    if not folder.is_dir():
        raise ActionError(f"result {declared.name}: the program did not make the folder {folder.name}")
    found = sorted(itertools.islice(_walk(folder, context), MAX_FOLDER_FILES + 1))
    if len(found) > MAX_FOLDER_FILES:
        raise ActionError(
            f"result {declared.name}: the folder {folder.name} has more than {MAX_FOLDER_FILES} files: let the program"
            " put them into an archive"
        )
    return [(path, path.relative_to(folder).as_posix()) for path in found]


def _walk(folder: Path, context: Context) -> Iterator[Path]:
    """Yield the files below a folder; symbolic links are neither yielded nor followed."""
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                context.check_cancelled()
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    yield Path(entry.path)
