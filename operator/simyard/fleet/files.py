# SPDX-License-Identifier: Apache-2.0
"""Answers the questions of workers for signed URLs of files.

The work of a question is two requests to the file store and one message. Questions of one broker user wait for each
other, and the questions of all users share the connections to the store. So a pool of a thousand workers that begin
with the same file delays no other pool. The number of questions that wait is bounded; further ones are dropped. A
worker repeats a question without an answer under the same id. A repetition of a question that waits does nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
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
from simyard.guest.messages import DownloadWanted, UploadWanted
from simyard.messaging.errors import MessagingError
from simyard.messaging.events import ReceivedEvent
from simyard_adapter.declarations import Json
from simyard_adapter.wire import Request
from simyard_sites.kubernetes.errors import ApiError

log = logging.getLogger(__name__)

MAX_PARALLEL = 64
MAX_PARALLEL_PER_SENDER = 16
MAX_WAITING = 200_000
MAX_WAITING_PER_SENDER = 40_000
"""Limits of the weight of the questions that are not answered yet; each part of an upload weighs as much as a question.

A part takes about 120 bytes, so all questions together take at most 24 MB."""
MAX_KNOWN_NAMESPACES = 10_000
NO_STORE = "this installation of Simyard has no file store: the platform team sets files.mode of the chart"
QUESTIONS = Counter("simyard_file_questions_total", "Questions of workers for signed URLs, by outcome.", ["outcome"])


Question = DownloadWanted | UploadWanted


@dataclass(slots=True)
class _Sender:
    """The questions of a broker user that are not answered yet: their ids, and their weight."""

    waiting: set[str] = field(default_factory=set)
    weight: int = 0
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_PARALLEL_PER_SENDER))


class FileAnswers:
    """The answers to questions of workers about files."""

    def __init__(
        self, registry: Registry, orders: Orders, access: StoreAccess | None, quota: int | None = None
    ) -> None:
        """Set up; ``quota`` is the number of bytes that a namespace may have, None for no limit."""
        self._registry = registry
        self._quota = quota
        self._orders = orders
        self._access = access
        self._catalog: FileCatalog | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._senders: dict[str, _Sender] = {}
        self._weight = 0
        self._slots = asyncio.Semaphore(MAX_PARALLEL)
        self._namespace_uids: OrderedDict[str, str] = OrderedDict()

    async def run(self) -> NoReturn:
        """Keep the connection to the file store until cancelled."""
        async with open_catalog(self._access) as self._catalog, asyncio.TaskGroup() as self._tasks:
            await asyncio.Event().wait()
        raise AssertionError("the task ends by cancellation only")

    def apply_event(self, event: ReceivedEvent) -> None:
        """Begin to answer a question; drop it if too many are under way."""
        worker = self._registry.find_worker(event.worker_uid)
        if not isinstance(event.message, Question) or worker is None or self._tasks is None:
            return
        sender = self._senders.setdefault(event.user, _Sender())
        if event.message.request in sender.waiting:
            return
        weight = _weigh(event.message)
        if sender.weight + weight > MAX_WAITING_PER_SENDER or self._weight + weight > MAX_WAITING:
            QUESTIONS.labels("dropped").inc()
            return
        sender.waiting.add(event.message.request)
        sender.weight += weight
        self._weight += weight
        self._tasks.create_task(self._answer_in_turn(event.user, sender, worker, event.message))

    async def _answer_in_turn(self, user: str, sender: _Sender, worker: Worker, question: Question) -> None:
        try:
            async with sender.slots, self._slots:
                await self._answer(user, worker, question)
        except Exception:
            QUESTIONS.labels("failed").inc()
            log.exception("a question of the worker %s about a file cannot be answered", worker.metadata.name)
        finally:
            weight = _weigh(question)
            sender.waiting.discard(question.request)
            sender.weight -= weight
            self._weight -= weight
            if not sender.waiting:
                self._senders.pop(user, None)

    async def _answer(self, user: str, worker: Worker, question: Question) -> None:
        outcome, body = await self._find_answer(user, worker, question)
        QUESTIONS.labels(outcome).inc()
        answer = {"request": question.request, **body}
        try:
            await self._orders.send(worker.metadata.uid, Request.FILES, answer, lasting=False)
        except MessagingError as error:  # the worker asks again
            log.info("the answer about a file did not reach the worker %s: %s", worker.metadata.name, error)

    async def _find_answer(self, user: str, worker: Worker, question: Question) -> tuple[str, Mapping[str, Json]]:
        """Return the outcome for the metric, and the body of the answer."""
        if self._catalog is None:
            return "refused", {"error": {"message": NO_STORE, "retryable": False, "absent": True}}
        try:
            if isinstance(question, DownloadWanted):
                uid = await self._find_namespace_uid(user, worker.metadata.namespace)
                return await self._sign_download(self._catalog, uid, question.address)
            namespace = await self._read_namespace(worker.metadata.namespace)
            return await self._offer_upload(self._catalog, namespace, worker, question.upload)
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
            # The result of a long computation must not be lost: the action waits for space, up to its timeout.
            return "refused", _make_error(namespace.describe_excess(error), retryable=True)
        return "upload", {"status": offer.to_json(), **self._trust()}

    def _trust(self) -> dict[str, Json]:
        authority = self._access.ca_certificate if self._access is not None else None
        return {"caCertificate": authority} if authority else {}

    async def _find_namespace_uid(self, user: str, namespace: str) -> str:
        """Return the uid of the namespace of a broker user.

        The user belongs to one pool or worker. It ends with its namespace, so its namespace never gets another uid.
        """
        if (uid := self._namespace_uids.get(user)) is None:
            uid = self._namespace_uids[user] = (await self._read_namespace(namespace)).uid
            while len(self._namespace_uids) > MAX_KNOWN_NAMESPACES:
                self._namespace_uids.popitem(last=False)
        return uid

    async def _read_namespace(self, name: str) -> FileNamespace:
        return read_namespace(await self._registry.client.get(NAMESPACES, name, ""), self._quota)


def _weigh(question: Question) -> int:
    return 1 + (len(question.upload.parts) if isinstance(question, UploadWanted) else 0)


def _make_error(message: str, *, retryable: bool = False) -> dict[str, Json]:
    return {"error": {"message": message, "retryable": retryable}}
