# SPDX-License-Identifier: Apache-2.0
"""A patch of the AMQP client, so that a message with unreadable properties or key does not end the connection.

The broker forwards properties without a check, for example text that is not UTF-8, a time after the year 9999, or
tables nested a thousand levels deep. The client's decoder then raises an error in the task that reads the connection,
and the connection ends. After that, the broker delivers the message to the next connection. So one message of one
worker would stop all consumers.

For each field of a table, the decoder also copies the rest of the frame. 128 KiB of the smallest fields block the
process for 0.5 s. So the patch counts the fields of a message, and treats a message with too many fields as unreadable.

An unreadable message arrives without its properties or its key. Every receiver refuses it, because it has no sender.
"""

from __future__ import annotations

import struct

from aiormq import spec
from pamqp import decode
from pamqp.common import FieldValue
from pamqp.header import ContentHeader
from prometheus_client import Counter

UNREADABLE = Counter("simyard_broker_unreadable_total", "Messages whose properties or routing key could not be read.")
_UNREADABLE_ERRORS = (ValueError, TypeError, LookupError, ArithmeticError, OSError, RecursionError, struct.error)
_FIXED_BYTES = 12  # AMQP 0-9-1, 4.2.6.1: class-id, weight and body size come before the properties
MAX_FIELDS = 500
"""Maximum number of fields in all tables and arrays of one message; honest messages have some dozens of fields."""
_read = ContentHeader.unmarshal
_read_field = decode.embedded_value
_read_delivery = spec.Basic.Deliver.unmarshal


class _Fields:
    """Counter of the fields in the message whose properties the client is reading."""

    number = 0
    are_counted = False


def _read_counted_field(value: bytes) -> tuple[int, FieldValue]:
    _Fields.number += 1
    if _Fields.are_counted and _Fields.number > MAX_FIELDS:
        raise ValueError(f"more than {MAX_FIELDS} fields")
    return _read_field(value)


def _read_or_empty(header: ContentHeader, data: bytes) -> None:
    _Fields.number, _Fields.are_counted = 0, True
    try:
        _read(header, data)
    except _UNREADABLE_ERRORS:
        if len(data) < _FIXED_BYTES:
            raise
        header.properties = spec.Basic.Properties()
        UNREADABLE.inc()
    finally:
        _Fields.are_counted = False


def _read_delivery_or_no_key(frame: spec.Basic.Deliver, data: bytes) -> None:
    """Read a delivery. Its routing key is the last field, and the only field that the sender chooses."""
    try:
        _read_delivery(frame, data)
    except UnicodeDecodeError:
        frame.routing_key = ""
        UNREADABLE.inc()


def tolerate_unreadable_messages() -> None:
    """Patch the client, so that an unreadable message arrives without its properties or its key."""
    decode.embedded_value = _read_counted_field
    ContentHeader.unmarshal = _read_or_empty  # type: ignore[assignment]
    spec.Basic.Deliver.unmarshal = _read_delivery_or_no_key  # type: ignore[assignment,method-assign]
