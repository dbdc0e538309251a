# SPDX-License-Identifier: Apache-2.0
"""Messages that no adapter would send, for everything that reads what workers say (``make fuzz-guest``).

The promises: a message is read or refused with a reason of one line; whatever is read can be written, fits its limits,
and holds no text that a terminal obeys.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

import simyard.guest
from simyard.guest.messages import AttributesChanged, Registered, Resulted, read_event, read_reply
from simyard.guest.reading import RefusedError, read_object
from simyard.guest.text import make_printable
from simyard.guest.values import ClaimedAttributes, ClaimedResult, InvalidResultError, merge_attributes
from simyard_adapter.declarations import Interface, ValueType
from simyard_adapter.limits import MAX_ATTRIBUTES_BYTES, MAX_DEPTH, MAX_RESULT_BYTES
from simyard_adapter.wire import Event, WireError
from simyard_dev.fuzzing import Fuzzer

VALUES = [{"name": f"{kind.value}_value", "type": kind.value} for kind in ValueType]
INTERFACE = Interface.from_json(
    {
        "attributes": [*VALUES, {"name": "state", "type": "string", "pattern": "[a-z]*", "maxLength": 8}],
        "actions": [{"name": "solve", "result": VALUES}],
    }
)
SOLVE = INTERFACE.find_action("solve")
KINDS = tuple(Event)


class BrokenPromiseError(AssertionError):
    """A promise that an input broke."""


def promise(kept: bool, what: object) -> None:
    if not kept:
        raise BrokenPromiseError(repr(what))


def exercise(data: bytes) -> None:
    """Read an input (its first byte says as what), and check all that is made of it."""
    choice, body = data[0] % (len(KINDS) + 2) if data else 0, data[1:]
    try:
        if choice < len(KINDS):
            _check_event(read_event(KINDS[choice], body))
        elif choice == len(KINDS):
            reply = read_reply(body)
            _check_text([reply.worker, reply.log, *_texts(reply.error)])
            _check_attributes(reply.attributes)
            _check_result(reply.result)
        else:
            text = body.decode(errors="surrogateescape")
            _check_text([make_printable(text)])
    except RefusedError as refused:
        promise(refused.problem.isprintable() and len(refused.problem) < 1000, refused.problem)
        _check_refused(body)


def _check_event(message: Any) -> None:
    if isinstance(message, Registered | AttributesChanged):
        _check_attributes(message.attributes)
    elif isinstance(message, Resulted):
        if isinstance(message.outcome, ClaimedResult):
            _check_result(message.outcome)
        else:
            _check_text(_texts(message.outcome))
    else:
        orjson.dumps(asdict(message))


def _check_attributes(claimed: ClaimedAttributes) -> None:
    refused: list[RefusedError] = []
    values = claimed.check(INTERFACE.attributes, refused.append)
    values = merge_attributes({"state": "x" * 8}, values, refused.append)
    _check_value(values, MAX_ATTRIBUTES_BYTES)
    for error in refused:
        _check_text([error.problem])


def _check_result(claimed: ClaimedResult) -> None:
    try:
        _check_value(claimed.check(SOLVE), MAX_RESULT_BYTES)
    except InvalidResultError as invalid:
        _check_text(_texts(invalid.error))


def _check_value(value: Any, most: int) -> None:
    written = orjson.dumps(value)
    promise(len(written) <= most and str(value) != "", value)
    _check_text(_strings(value))


def _check_text(texts: list[str]) -> None:
    for text in texts:
        promise(make_printable(text) == text, text)


def _texts(error: WireError | None) -> list[str]:
    return [error.message, error.field] if error is not None else []


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for item in items for text in _strings(item)]


def _check_refused(body: bytes) -> None:
    """An object that is not deep and not long is refused for what it says, never as unreadable."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return
    if isinstance(value, dict) and _depth(value) <= MAX_DEPTH:
        read_object(body, len(body))


def _depth(value: Any) -> int:
    """Levels of a value; as deep as orjson reads (1,024), which is near the limit of recursion."""
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [item for one in level for item in (one.values() if isinstance(one, dict) else one)]
    return depth


WORDS = [
    *b'{"|":|",|}|[|]|[[[[[[[[|]]]]]]]]|{"a":{"a":{"a":|}}}|null|true|-1|1.5|1e400|9223372036854775808|\\|\\"'.split(
        b"|"
    ),
    *b'"invocation":"id"|"startedAt":|"seconds":|"result":{|"error":{"reason":"|"message":"|"field":"'.split(b"|"),
    *b'"percent":|"adapterVersion":"|"attributes":{|"values":{|"takes":true|"worker":"|"log":"|"again":true'.split(
        b"|"
    ),
    *(f'"{item["name"]}":'.encode() for item in VALUES),
    *(
        b'"state":"',
        b"\\u001b]0;",
        b"\\u0007",
        b"\\u202e",
        b"\\ud800",
        b"\x1b[2J",
        b"\xc2\x9b",
        b"\xe2\x80\xae",
        b"\xff",
        b"\r",
    ),
]
SEEDS = [bytes([choice]) + b'{"invocation":"id","result":{},"values":{}}' for choice in range(len(KINDS) + 2)]
FUZZER = Fuzzer(
    exercise, Path(__file__).parent / "corpus", str(Path(simyard.guest.__file__).parent), WORDS, SEEDS, max_bytes=2000
)

if __name__ == "__main__":
    FUZZER.run_command(__doc__)
