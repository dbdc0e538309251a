"""``workers/{name}/log``."""

from __future__ import annotations

from collections.abc import Mapping

from simyard.apiserver.asking import ask
from simyard.apiserver.broker import BrokerLink
from simyard.apiserver.directory import Directory
from simyard.apiserver.inputs import positive
from simyard.apiserver.routes import Call
from simyard_adapter.declarations import Json
from simyard_adapter.wire import Request

ASK_SECONDS = 10.0


async def read_log(directory: Directory, broker: BrokerLink, call: Call, query: Mapping[str, str]) -> str:
    """The log of a worker's adapter and program: its end (``?tailLines=``), or that of one ``?invocation=``.

    Raises:
        StatusError: there is no such worker, or it cannot be asked.
    """
    target = await directory.target(call)
    body: dict[str, Json] = {}
    if (lines := positive(query, "tailLines")) is not None:
        body["tailLines"] = lines
    if query.get("invocation"):
        body["invocation"] = query["invocation"]
    reply = await ask(
        broker,
        target.subject,
        directory.destination(target),
        Request.LOG,
        body,
        timeout_seconds=ASK_SECONDS,
        timeout_message=f"{target.subject} has not answered within {ASK_SECONDS:.0f} s",
    )
    return reply.log
