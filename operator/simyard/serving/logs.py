# SPDX-License-Identifier: Apache-2.0
"""The subresource ``workers/{name}/log``: returns the log of a worker."""

from __future__ import annotations

from collections.abc import Mapping

from simyard.serving.broker import BrokerClient
from simyard.serving.calls import ResourceCall
from simyard.serving.directory import Directory
from simyard.serving.inputs import read_positive
from simyard.serving.worker_requests import ask
from simyard_adapter.declarations import Json
from simyard_adapter.wire import Request

ASK_SECONDS = 10.0


async def read_log(directory: Directory, broker: BrokerClient, call: ResourceCall, query: Mapping[str, str]) -> str:
    """Return the log of a worker's adapter and program: its last ``?tailLines=``, or the part of one ``?invocation=``.

    Raises:
        StatusError: the worker does not exist or cannot be reached.
    """
    target = await directory.find_target(call)
    body: dict[str, Json] = {}
    if (lines := read_positive(query, "tailLines")) is not None:
        body["tailLines"] = lines
    if query.get("invocation"):
        body["invocation"] = query["invocation"]
    reply = await ask(
        broker,
        target.subject,
        directory.choose_destination(target),
        Request.LOG,
        body,
        timeout_seconds=ASK_SECONDS,
        timeout_message=f"{target.subject} did not answer within {ASK_SECONDS:.0f} s; try again",
    )
    return reply.log
