# SPDX-License-Identifier: Apache-2.0
"""Defines the protocol between an emulated cloud and its clients: JSON, one message per line, over a unix socket.

A client sends :class:`Configure` first, then one call after another; parallel calls use several connections. The answer
to a call is one line, or several :class:`Outcomes`. After :class:`Watch`, the cloud sends :class:`Batch` lines without
end: the snapshot in parts, then changes, and the snapshot again after it has lost changes. It sends a line at least
every ``HEARTBEAT_SECONDS``, if necessary an empty one.
"""

from __future__ import annotations

import enum
import importlib.metadata
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from simyard_sites import base
from simyard_sites.base import (
    Address,
    ErrorScope,
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
"""The version that an emulated cloud reports."""
LINE_BYTES = 64 * 2**20
"""Maximum length of a line. Because of :data:`ITEMS` and :data:`BOOTSTRAP_BYTES`, no line is nearly as long."""
ITEMS = 500
"""Maximum number of items in one line."""
BOOTSTRAP_BYTES = 8 * 2**20
"""Maximum size of all bootstrap documents in one ``Create``. A single document may be larger."""
HEARTBEAT_SECONDS = 10.0
_BYTES = "latin-1"  # Latin-1 represents any bytes as a string with one character each.


@dataclass(frozen=True, slots=True)
class Configure:
    """The call that sets the cloud's settings from now on; answered by :class:`Welcome`."""

    settings: Settings


@dataclass(frozen=True, slots=True)
class Create:
    """The call that creates or adopts machines; answered by :class:`Outcomes`."""

    requests: Sequence[MachineRequest]


@dataclass(frozen=True, slots=True)
class Delete:
    """The call that deletes machines; answered by :class:`Outcomes`."""

    ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Get:
    """The call that reads the state of machines; answered by :class:`Outcomes`."""

    ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Act:
    """The call that applies a power action; answered by :class:`Outcomes`."""

    ids: Sequence[str]
    action: PowerAction


@dataclass(frozen=True, slots=True)
class Forget:
    """The call that makes these machines disappear without an event (a fault); answered by :class:`Outcomes`."""

    ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Resurrect:
    """The call that makes machines run again that are gone, without guests (a fault); answered by :class:`Outcomes`."""

    ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Disturb:
    """The call that disturbs the clients (a fault), in place of the previous one; answered by :class:`Outcomes`.

    With ``error``, the next ``calls`` calls that create machines refuse new machines with this error. Without it, the
    cloud carries out the next ``calls`` calls that create or delete machines, but loses their answers. With
    ``loses_events``, it reports no single changes.
    """

    calls: int = 0
    error: SiteError | None = None
    loses_events: bool = False


@dataclass(frozen=True, slots=True)
class Watch:
    """The call for all machines and all changes; answered by :class:`Batch` lines until the connection ends."""


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The call that ends all machines and the cloud itself; answered by the end of the connection."""


Call = Configure | Create | Delete | Get | Act | Forget | Resurrect | Disturb | Watch | ShutDown


@dataclass(frozen=True, slots=True)
class Welcome:
    """The cloud's version."""

    version: str


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcomes of the items of a call. If ``more`` is true, another line with outcomes follows."""

    items: Sequence[Outcome]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The refusal of a whole call, which had no effect."""

    error: SiteError


class BatchKind(enum.StrEnum):
    """The kind of a batch: a part of the snapshot, or later changes.

    The first changes mean that the snapshot is complete.
    """

    SNAPSHOT = "snapshot"
    CHANGES = "changes"


@dataclass(frozen=True, slots=True)
class Batch:
    """Machines in their present state, and machines that are gone."""

    kind: BatchKind
    machines: Sequence[Machine] = ()
    gone: Sequence[Gone] = ()


Reply = Welcome | Outcomes | Refused | Batch


def encode(message: Call | Reply) -> bytes:
    """Return the message as a line."""
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
        case Forget(ids):
            return {"forget": list(ids)}
        case Resurrect(ids):
            return {"resurrect": list(ids)}
        case Disturb(calls, error, loses_events):
            return {"disturb": [calls, _error_to_json(error) if error else None, loses_events]}
        case Watch():
            return {"watch": True}
        case ShutDown():
            return {"shutDown": True}
        case Welcome(version):
            return {"version": version}
        case Outcomes(items, more):
            return {"items": [_outcome_to_json(item) for item in items], "more": more}
        case Refused(error):
            return {"refused": _error_to_json(error)}
        case Batch(kind, machines, gone):
            found = [_machine_to_json(machine) for machine in machines]
            return {kind.value: found, "gone": [[item.id, item.name] for item in gone]}
        case _:
            assert_never(message)


def decode_call(line: bytes) -> Call:
    """Read a call.

    Raises:
        ValueError: The line is not a call.
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
            case {"forget": ids}:
                return Forget(ids)
            case {"resurrect": ids}:
                return Resurrect(ids)
            case {"disturb": [calls, error, loses_events]}:
                return Disturb(calls, _error_from_json(error) if error else None, loses_events)
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
        ValueError: The line is not an answer.
    """
    data = _object(line)
    try:
        match data:
            case {"version": version}:
                return Welcome(version)
            case {"items": items, "more": more}:
                return Outcomes([_outcome_from_json(item) for item in items], more)
            case {"refused": error}:
                return Refused(_error_from_json(error))
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
    data: list[Any] = [request.name, _owner_to_json(request.owner), request.bootstrap.decode(_BYTES)]
    if not request.owner.pool:  # The request of one of thousands in a pool is not worth its bytes.
        size = {"cores": request.cores, "memory_mib": request.memory_mib}
        keys = list(request.ssh_public_keys)
        data.append({**size, "hostname": request.hostname, "user_data": request.user_data, "ssh_public_keys": keys})
    return data


def _request_from_json(data: list[Any]) -> MachineRequest:
    name, owner, bootstrap, *rest = data
    [asked] = rest or [{}]
    keys = tuple(asked.pop("ssh_public_keys", ()))
    return MachineRequest(name, Owner(*owner), bootstrap.encode(_BYTES), ssh_public_keys=keys, **asked)


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
        "addresses": [[address.ip, address.interface] for address in machine.addresses],
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
        tuple(Address(*address) for address in data.get("addresses", ())),  # Earlier versions send no addresses.
    )


def _outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    data: dict[str, Any] = {"key": outcome.key}
    if outcome.machine:
        data["machine"] = _machine_to_json(outcome.machine)
    if outcome.error:
        data["error"] = _error_to_json(outcome.error)
    return data


def _outcome_from_json(data: dict[str, Any]) -> Outcome:
    machine = _machine_from_json(data["machine"]) if "machine" in data else None
    error = _error_from_json(data["error"]) if "error" in data else None
    return Outcome(data["key"], machine, error)


def _error_to_json(error: SiteError) -> list[Any]:
    return [type(error).__name__, str(error), error.retry_after_seconds, error.scope]


def _error_from_json(data: list[Any]) -> SiteError:
    name, message, retry_after_seconds, *scope = data  # A cloud of an earlier version sends no scope.
    kind = _ERRORS[name]
    return kind(message, scope=ErrorScope(*scope) if scope else None, retry_after_seconds=retry_after_seconds)


_ERRORS: dict[str, type[SiteError]] = {
    error.__name__: error
    for error in (
        base.ConflictError,
        base.MachineNotFoundError,
        base.InternalError,
        base.InvalidSpecError,
        base.ThrottledError,
        base.QuotaExhaustedError,
        base.PermissionDeniedError,
    )
}
