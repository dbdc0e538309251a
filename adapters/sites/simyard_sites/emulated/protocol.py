"""What an emulated cloud and its clients say to each other: JSON, one message per line, over a unix socket.

A client sends :class:`Configure` first, then calls; each gets one line in answer. After :class:`Watch` the cloud sends
:class:`Batch` lines without end: the snapshot in parts, then changes, and an empty one at least every
``HEARTBEAT_SECONDS``.
"""

from __future__ import annotations

import base64
import enum
import importlib.metadata
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from simyard_sites import base
from simyard_sites.base import (
    Gone,
    Machine,
    MachineRequest,
    MachineState,
    Outcome,
    Owner,
    PowerAction,
    SiteError,
    Stage,
)
from simyard_sites.emulated.settings import Settings

VERSION = f"emulated {importlib.metadata.version('simyard-sites')}"
"""What an emulated cloud says it is."""
LINE_BYTES = 64 * 2**20
"""The longest line; :data:`ITEMS` and :data:`BOOTSTRAP_BYTES` keep a sender far below it."""
ITEMS = 500
"""The most items in one line."""
BOOTSTRAP_BYTES = 8 * 2**20
"""How much of bootstrap documents one ``Create`` carries, unless a single one is larger."""
HEARTBEAT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Configure:
    """Behave like this from now on; answered by :class:`Welcome`."""

    settings: Settings


@dataclass(frozen=True, slots=True)
class Create:
    """Create or adopt machines; answered by :class:`Outcomes`."""

    requests: Sequence[MachineRequest]


@dataclass(frozen=True, slots=True)
class Delete:
    """End machines; answered by :class:`Outcomes`."""

    ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Get:
    """Look at machines; answered by :class:`Outcomes`."""

    ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Act:
    """Do a power action; answered by :class:`Outcomes`."""

    ids: Sequence[str]
    action: PowerAction


@dataclass(frozen=True, slots=True)
class Watch:
    """Tell all machines and all changes; answered by :class:`Batch` lines until the connection ends."""


@dataclass(frozen=True, slots=True)
class ShutDown:
    """End all machines and the cloud itself; answered by the end of the connection."""


Call = Configure | Create | Delete | Get | Act | Watch | ShutDown


@dataclass(frozen=True, slots=True)
class Welcome:
    """The cloud's version."""

    version: str


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What became of each item of a call."""

    items: Sequence[Outcome]


class BatchKind(enum.StrEnum):
    """A part of the snapshot, or changes since; the first batch of changes says that the snapshot is complete."""

    SNAPSHOT = "snapshot"
    CHANGES = "changes"


@dataclass(frozen=True, slots=True)
class Batch:
    """Machines as they are now, and machines that are gone."""

    kind: BatchKind
    machines: Sequence[Machine] = ()
    gone: Sequence[Gone] = ()


Reply = Welcome | Outcomes | Batch


def encode(message: Call | Reply) -> bytes:
    """The message as a line."""
    return json.dumps(_to_json(message), separators=(",", ":")).encode() + b"\n"


def _to_json(message: Call | Reply) -> dict[str, Any]:
    match message:
        case Configure(settings):
            return {"configure": settings.to_provider()}
        case Create(requests):
            return {"create": [_request_to_json(request) for request in requests]}
        case Delete(ids):
            return {"delete": list(ids)}
        case Get(ids):
            return {"get": list(ids)}
        case Act(ids, action):
            return {action.value: list(ids)}
        case Watch():
            return {"watch": True}
        case ShutDown():
            return {"shutDown": True}
        case Welcome(version):
            return {"version": version}
        case Outcomes(items):
            return {"items": [_outcome_to_json(item) for item in items]}
        case Batch(kind, machines, gone):
            found = [_machine_to_json(machine) for machine in machines]
            return {kind.value: found, "gone": [[item.id, item.name] for item in gone]}
        case _:
            assert_never(message)


def decode_call(line: bytes) -> Call:
    """Read a call.

    Raises:
        ValueError: it is none.
    """
    data = _object(line)
    try:
        match data:
            case {"configure": settings}:
                return Configure(Settings.from_provider(settings))
            case {"create": requests}:
                return Create([_request_from_json(item) for item in requests])
            case {"delete": ids}:
                return Delete(ids)
            case {"get": ids}:
                return Get(ids)
            case {"watch": True}:
                return Watch()
            case {"shutDown": True}:
                return ShutDown()
            case _:
                [(action, ids)] = data.items()
                return Act(ids, PowerAction(action))
    except (TypeError, KeyError, SiteError) as error:
        raise ValueError(f"not a call: {type(error).__name__}: {error}") from None


def decode_reply(line: bytes) -> Reply:
    """Read an answer.

    Raises:
        ValueError: it is none.
    """
    data = _object(line)
    try:
        match data:
            case {"version": version}:
                return Welcome(version)
            case {"items": items}:
                return Outcomes([_outcome_from_json(item) for item in items])
            case _:
                kind = BatchKind.SNAPSHOT if BatchKind.SNAPSHOT in data else BatchKind.CHANGES
                machines = [_machine_from_json(item) for item in data[kind]]
                return Batch(kind, machines, [Gone(machine_id, name) for machine_id, name in data["gone"]])
    except (TypeError, KeyError) as error:
        raise ValueError(f"not an answer: {type(error).__name__}: {error}") from None


def _object(line: bytes) -> dict[str, Any]:
    data = json.loads(line)
    if not isinstance(data, dict):
        raise ValueError("a message must be a JSON object")
    return data


def _request_to_json(request: MachineRequest) -> list[Any]:
    return [request.name, _owner_to_json(request.owner), base64.b64encode(request.bootstrap).decode()]


def _request_from_json(data: list[Any]) -> MachineRequest:
    name, owner, bootstrap = data
    return MachineRequest(name, Owner(*owner), base64.b64decode(bootstrap))


def _owner_to_json(owner: Owner) -> list[str]:
    return [owner.namespace, owner.worker, owner.worker_uid, owner.pool]


def _machine_to_json(machine: Machine) -> dict[str, Any]:
    return {
        "id": machine.id,
        "name": machine.name,
        "owner": _owner_to_json(machine.owner),
        "state": machine.state,
        "entered": machine.entered,
        "reason": machine.reason,
        "message": machine.message,
    }


def _machine_from_json(data: dict[str, Any]) -> Machine:
    return Machine(
        data["id"],
        data["name"],
        Owner(*data["owner"]),
        MachineState(data["state"]),
        {Stage(stage): time for stage, time in data["entered"].items()},
        data["reason"],
        data["message"],
    )


def _outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    data: dict[str, Any] = {"key": outcome.key}
    if outcome.machine:
        data["machine"] = _machine_to_json(outcome.machine)
    if outcome.error:
        data["error"] = [type(outcome.error).__name__, str(outcome.error)]
    return data


def _outcome_from_json(data: dict[str, Any]) -> Outcome:
    machine = _machine_from_json(data["machine"]) if "machine" in data else None
    error = None
    if "error" in data:
        name, message = data["error"]
        error = _ERRORS[name](message)
    return Outcome(data["key"], machine, error)


_ERRORS: dict[str, type[SiteError]] = {
    error.__name__: error for error in (base.ConflictError, base.MachineNotFoundError, base.InternalError)
}
