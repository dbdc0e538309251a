# SPDX-License-Identifier: Apache-2.0
"""Answers the questions of workers for signed URLs, with which they download and upload files.

An answer needs two requests to the file store and one message. The operator answers a few questions of each broker
user at the same time, and the users take turns. So a pool of a thousand workers that all ask for the same file does not
delay other pools. Only a question that is being answered has a task. The memory of the waiting questions is bounded,
and the operator drops questions above the bound. A worker that gets no answer repeats the question with the same id;
the operator ignores the repetition while the question waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

from prometheus_client import Counter

from simyard.api.files import FileUploadSpec
from simyard.api.names import NAMESPACES
from simyard.api.worker import Worker
from simyard.files.access import StoreAccess
from simyard.files.catalog import FileCatalog, open_catalog
from simyard.files.keys import FileOrigin
from simyard.files.namespaces import FileNamespace, read_namespace
from simyard.files.quotas import QuotaError
from simyard.files.store import StoreError
from simyard.files.uploads import Upload
from simyard.fleet.broker.orders import Orders
from simyard.fleet.registry import Registry
from simyard.fleet.studies.parts import Admit, PartRefusedError
from simyard.guest.messages import DownloadWanted, PartWanted, UploadWanted
from simyard.messaging.errors import MessagingError
from simyard.messaging.events import ReceivedEvent
from simyard_adapter.declarations import Json
from simyard_adapter.wire import Request
from simyard_sites.kubernetes.errors import ApiError

log = logging.getLogger(__name__)

MAX_PARALLEL = 64
MAX_PARALLEL_PER_SENDER = 16
MAX_WAITING_BYTES = 48 * 1024 * 1024
MAX_WAITING_BYTES_PER_SENDER = 12 * 1024 * 1024
"""Maximum memory of all questions of one sender that are not answered yet; 25,000 downloads, for example."""
DOWNLOAD_BYTES, UPLOAD_BYTES, PART_BYTES = 512, 4096, 136
"""Upper bounds for the memory of a question for a download, of one for an upload, and of each part of an upload."""
MAX_KNOWN_NAMESPACES = 10_000
NO_STORE = "this installation of Simyard has no file store: the platform team sets files.mode of the chart"
QUESTIONS = Counter("simyard_file_questions_total", "Questions of workers for signed URLs, by outcome.", ["outcome"])


Question = DownloadWanted | UploadWanted | PartWanted
OfferPart = Callable[[str, PartWanted, Admit], Awaitable[Mapping[str, Json]]]
"""Function that answers a question of the worker with the given uid about rows of a study.

It raises PartRefusedError if it refuses the upload."""


@dataclass(slots=True)
class _Sender:
    """A broker user with its questions that are not answered yet.

    Attributes:
        waiting: the questions that have no task yet, each with the uid of its worker.
        known: the ids of all questions.
        bytes: upper bound for the memory of all questions.
        under_way: the number of questions that have a task.
    """

    waiting: deque[tuple[str, Question]] = field(default_factory=deque)
    known: set[str] = field(default_factory=set)
    bytes: int = 0
    under_way: int = 0


class FileAnswers:
    """Component that answers the questions of workers about files."""

    def __init__(
        self,
        registry: Registry,
        orders: Orders,
        access: StoreAccess | None,
        offer_part: OfferPart,
        quota: int | None = None,
    ) -> None:
        """Create the component, without a connection to the file store.

        ``offer_part`` answers questions about the rows of studies. ``quota`` is the maximum number of bytes of a
        namespace; None: no limit.
        """
        self._offer_part = offer_part
        self._registry = registry
        self._quota = quota
        self._orders = orders
        self._access = access
        self._catalog: FileCatalog | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._senders: dict[str, _Sender] = {}
        self._turns: OrderedDict[str, _Sender] = OrderedDict()
        """Senders that have a waiting question which may get a task, in the order of their turns."""
        self._bytes = 0
        self._under_way = 0
        self._namespace_uids: OrderedDict[str, str] = OrderedDict()

    async def run(self) -> NoReturn:
        """Keep the connection to the file store until cancelled."""
        async with open_catalog(self._access) as self._catalog, asyncio.TaskGroup() as self._tasks:
            await asyncio.Event().wait()
        raise AssertionError("the task ends by cancellation only")

    @property
    def catalog(self) -> FileCatalog | None:
        """The catalog of the file store; None if the platform has none, or before :meth:`run`."""
        return self._catalog

    def apply_event(self, event: ReceivedEvent) -> None:
        """Add the question in an event to the waiting questions; drop it if they use too much memory."""
        question = event.message
        if not isinstance(question, Question) or self._tasks is None:
            return
        sender = self._senders.setdefault(event.user, _Sender())
        if question.request in sender.known:
            return
        size = _measure(question)
        if sender.bytes + size > MAX_WAITING_BYTES_PER_SENDER or self._bytes + size > MAX_WAITING_BYTES:
            QUESTIONS.labels("dropped").inc()
            return
        sender.known.add(question.request)
        sender.waiting.append((event.worker_uid, question))
        self._add_bytes(sender, size)
        self._wait_for_turn(event.user, sender)
        self._begin(self._tasks)

    def _wait_for_turn(self, user: str, sender: _Sender) -> None:
        if sender.waiting and sender.under_way < MAX_PARALLEL_PER_SENDER:
            self._turns.setdefault(user, sender)

    def _begin(self, tasks: asyncio.TaskGroup) -> None:
        """Start tasks for waiting questions, up to the maximum number of tasks."""
        while self._turns and self._under_way < MAX_PARALLEL:
            user, sender = self._turns.popitem(last=False)
            uid, question = sender.waiting.popleft()
            sender.under_way += 1
            self._under_way += 1
            self._wait_for_turn(user, sender)
            tasks.create_task(self._answer_and_go_on(tasks, user, sender, uid, question))

    async def _answer_and_go_on(
        self, tasks: asyncio.TaskGroup, user: str, sender: _Sender, uid: str, question: Question
    ) -> None:
        try:
            if (worker := self._registry.find_worker(uid)) is not None:
                await self._answer(user, worker, question)
        except Exception:
            QUESTIONS.labels("failed").inc()
            log.exception("a question of the worker %s about a file cannot be answered", uid)
        sender.under_way -= 1
        self._under_way -= 1
        sender.known.discard(question.request)
        self._add_bytes(sender, -_measure(question))
        if not sender.known:
            self._senders.pop(user, None)
        self._wait_for_turn(user, sender)
        self._begin(tasks)

    def _add_bytes(self, sender: _Sender, size: int) -> None:
        sender.bytes += size
        self._bytes += size

    async def _answer(self, user: str, worker: Worker, question: Question) -> None:
        outcome, body = await self._find_answer(user, worker, question)
        QUESTIONS.labels(outcome).inc()
        answer = {"request": question.request, **body}
        try:
            await self._orders.send(worker.metadata.uid, Request.FILES, answer, lasting=False)
        except MessagingError as error:  # the worker asks again
            log.info("the answer about a file did not reach the worker %s: %s", worker.metadata.name, error)

    async def _find_answer(self, user: str, worker: Worker, question: Question) -> tuple[str, Mapping[str, Json]]:
        """Return the outcome of a question, for the metric, and the body of the answer."""
        try:
            if isinstance(question, PartWanted):
                status = await self._offer_part(worker.metadata.uid, question, partial(self._admit_part, worker))
                return "part", {"status": dict(status), **self._trust()}
            if self._catalog is None:
                return "refused", {"error": {"message": NO_STORE, "retryable": False, "absent": True}}
            if isinstance(question, DownloadWanted):
                uid = await self._find_namespace_uid(user, worker.metadata.namespace)
                return await self._sign_download(self._catalog, uid, question.address)
            namespace = await self._read_namespace(worker.metadata.namespace)
            return await self._offer_upload(self._catalog, namespace, worker, question.upload)
        except PartRefusedError as error:
            return "refused", _make_error(str(error), retryable=error.retryable)
        except StoreError as error:
            return "unavailable", _make_error(str(error), retryable=error.retryable)
        except ValueError as error:
            return "refused", _make_error(str(error))
        except ApiError as error:
            return "unavailable", _make_error(f"the namespace cannot be read: {error}", retryable=True)

    async def _sign_download(self, catalog: FileCatalog, uid: str, address: str) -> tuple[str, Mapping[str, Json]]:
        signed = await catalog.sign_download(uid, address)
        if signed is None:
            return "refused", _make_error(
                f"the namespace has no file {address}: upload it with `kubectl simyard cp FILE files:`"
            )
        record, request = signed
        spec: dict[str, Json] = {"bytes": record.size, "name": record.name, "mediaType": record.media_type}
        return "download", {"spec": spec, "status": {"present": True, "download": request.to_json()}, **self._trust()}

    async def _admit_part(self, worker: Worker, question: PartWanted) -> None:
        namespace = await self._read_namespace(worker.metadata.namespace)
        if namespace.quota is None or self._catalog is None:
            return
        try:
            await self._catalog.admit_part(namespace.uid, question.invocation, question.bytes, namespace.quota)
        except QuotaError as error:  # as the results of other actions, the rows wait for space
            raise PartRefusedError(namespace.describe_excess(error), retryable=True) from None

    async def _offer_upload(
        self, catalog: FileCatalog, namespace: FileNamespace, worker: Worker, spec: FileUploadSpec
    ) -> tuple[str, Mapping[str, Json]]:
        parts = tuple(bytes.fromhex(part) for part in spec.parts)
        owner = f"worker:{worker.metadata.name}"
        upload = Upload(spec.address, spec.bytes, parts, spec.media_type, spec.name, owner)
        if (problem := upload.find_problem()) is not None:
            return "refused", _make_error(": ".join(problem))
        try:
            offer = await catalog.offer_upload(
                namespace.uid,
                FileOrigin.WORKER,
                upload,
                upload_id=spec.upload_id,
                first_part=spec.first_part,
                quota=namespace.quota,
            )
        except QuotaError as error:
            # The error is retryable: the worker waits for space up to its action's timeout, so that no result is lost.
            return "refused", _make_error(namespace.describe_excess(error), retryable=True)
        return "upload", {"status": offer.to_json(), **self._trust()}

    def _trust(self) -> dict[str, Json]:
        authority = self._access.ca_certificate if self._access is not None else None
        return {"caCertificate": authority} if authority else {}

    async def _find_namespace_uid(self, user: str, namespace: str) -> str:
        """Return the uid of a broker user's namespace, which the method reads only once.

        The user belongs to one pool or worker, and is deleted with its namespace. So this uid never changes.
        """
        if (uid := self._namespace_uids.get(user)) is None:
            uid = self._namespace_uids[user] = (await self._read_namespace(namespace)).uid
            while len(self._namespace_uids) > MAX_KNOWN_NAMESPACES:
                self._namespace_uids.popitem(last=False)
        return uid

    async def _read_namespace(self, name: str) -> FileNamespace:
        return read_namespace(await self._registry.client.get(NAMESPACES, name, ""), self._quota)


def _measure(question: Question) -> int:
    """Return an upper bound for the memory of a question, in bytes."""
    if isinstance(question, DownloadWanted):
        return DOWNLOAD_BYTES
    if isinstance(question, PartWanted):
        return UPLOAD_BYTES + len(question.content)
    return UPLOAD_BYTES + PART_BYTES * len(question.upload.parts)


def _make_error(message: str, *, retryable: bool = False) -> dict[str, Json]:
    return {"error": {"message": message, "retryable": retryable}}
