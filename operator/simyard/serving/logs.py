# SPDX-License-Identifier: Apache-2.0
"""Serves the subresource ``workers/{name}/log``: returns the log of a worker, once or as it grows.

A worker stores nothing about readers: each request names the position from which the reader wants lines. To follow a
log, the apiserver sends one request after the other, and keeps only one reply in memory. The number of followers is
limited, in total and for each worker, because each follower occupies a connection and causes a request per second.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from simyard.guest.messages import Reply
from simyard.serving.broker import BrokerClient
from simyard.serving.calls import ResourceCall
from simyard.serving.directory import Destination, Directory
from simyard.serving.inputs import read_count, read_flag, read_positive
from simyard.serving.status import StatusError, StatusReason, Subject
from simyard.serving.worker_requests import ask
from simyard_adapter.declarations import Json
from simyard_adapter.wire import Request

ASK_SECONDS = 10.0
POLL_SECONDS = 1.0
MAX_FAILURES = 60
"""Maximum number of consecutive requests without an answer; after them, the apiserver ends the follower's response."""
MAX_FOLLOWERS = 200
MAX_FOLLOWERS_PER_WORKER = 8


@dataclass(frozen=True, slots=True)
class FollowedLog:
    """A log that a client follows: the first part is read, and further parts are read while the client is connected.

    Attributes:
        worker: The uid of the worker.
        texts: The parts of the log. An empty part means that there are no new lines.
    """

    worker: str
    texts: AsyncGenerator[str, None]


@dataclass(frozen=True, slots=True)
class _AskedWorker:
    """The worker whose log is read, and the queue for requests to it."""

    subject: Subject
    uid: str
    destination: Destination


class Logs:
    """The reader of workers' logs, for users whose rights are already checked."""

    def __init__(
        self,
        directory: Directory,
        broker: BrokerClient,
        is_stopping: Callable[[], bool] = lambda: False,
        *,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """Create the reader. All followers end when ``is_stopping`` returns True."""
        self._directory = directory
        self._broker = broker
        self._is_stopping = is_stopping
        self._poll_seconds = poll_seconds
        self._followers: Counter[str] = Counter()

    async def read(self, call: ResourceCall, query: Mapping[str, str]) -> str | FollowedLog:
        """Return the log of a worker's adapter and program: the last ``?tailLines=``, or that of one ``?invocation=``.

        With ``?after=``, return all lines after this position. With ``?follow=true``, also return the lines that the
        worker writes later.

        Raises:
            StatusError: the worker does not exist or cannot be reached, or the query is wrong.
        """
        target = await self._directory.find_target(call)
        follow, after = read_flag(query, "follow", False), read_count(query, "after")
        body: dict[str, Json] = {}
        if (lines := read_positive(query, "tailLines")) is not None:
            body["tailLines"] = lines
        if query.get("invocation"):
            body["invocation"] = query["invocation"]
        asked = _AskedWorker(target.subject, target.metadata.uid, self._directory.choose_destination(target))
        first = await self._ask(asked, body if after is None else {**body, "after": after})
        if not follow and after is None:
            return first.log
        return FollowedLog(target.metadata.uid, self._read_on(asked, body, first, wait=follow))

    @contextmanager
    def admit(self, followed: FollowedLog) -> Iterator[None]:
        """Count a follower while the block runs.

        Raises:
            StatusError: there are too many followers.
        """
        if self._followers.total() >= MAX_FOLLOWERS or self._followers[followed.worker] >= MAX_FOLLOWERS_PER_WORKER:
            raise StatusError(
                StatusReason.TOO_MANY_REQUESTS,
                f"too many clients follow logs ({MAX_FOLLOWERS} in all, {MAX_FOLLOWERS_PER_WORKER} of one worker): try"
                " again, or read the log without follow",
                retry_after_seconds=5,
            )
        self._followers[followed.worker] += 1
        try:
            yield
        finally:
            self._followers[followed.worker] -= 1
            self._followers += Counter()  # drops the workers without followers

    async def _read_on(
        self, worker: _AskedWorker, body: Mapping[str, Json], reply: Reply, *, wait: bool
    ) -> AsyncGenerator[str, None]:
        failures = 0
        position = reply.next
        yield reply.log
        while position is not None and not reply.ended and (wait or reply.log) and failures <= MAX_FAILURES:
            if failures or not reply.log:
                await asyncio.sleep(self._poll_seconds)
            if self._is_stopping() or self._directory.find_worker_by_uid(worker.uid) is None:
                return
            try:
                reply = await self._ask(worker, {**body, "after": position})
                failures, position = 0, reply.next
                yield reply.log
            except StatusError:  # the worker or the broker may be back soon
                failures += 1
                yield ""

    async def _ask(self, worker: _AskedWorker, body: Mapping[str, Json]) -> Reply:
        return await ask(
            self._broker,
            worker.subject,
            worker.destination,
            Request.LOG,
            body,
            timeout_seconds=ASK_SECONDS,
            timeout_message=f"{worker.subject} did not answer within {ASK_SECONDS:.0f} s; try again",
        )
