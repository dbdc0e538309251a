"""Properties and routing keys that the AMQP client cannot read must not cost the connection.

The broker passes on what it does not understand: text that is not UTF-8, a time after the year 9999, tables nested a
thousand deep. The client's decoder raises in the task that reads the connection, which ends it; the broker delivers the
message again to the next connection, and so one message of one worker or client would stop everybody's.

It also copies the rest of the frame for each field of a table, so that 128 KiB of the smallest fields take it 0.5 s in
which nothing else happens. So the fields of one message are counted, and too many are unreadable.
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
"""In all tables and arrays of one message: honest ones have some dozens."""
_read = ContentHeader.unmarshal
_read_field = decode.embedded_value
_read_delivery = spec.Basic.Deliver.unmarshal


class _Fields:
    """Counts the fields of the message whose properties are read at the moment."""

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
    """Read a delivery; its routing key is the last field, and the only one that the sender chooses."""
    try:
        _read_delivery(frame, data)
    except UnicodeDecodeError:
        frame.routing_key = ""
        UNREADABLE.inc()


def tolerate_unreadable_messages() -> None:
    """From now on such a message arrives without its properties or its key, which all our receivers refuse."""
    decode.embedded_value = _read_counted_field
    ContentHeader.unmarshal = _read_or_empty  # type: ignore[assignment]
    spec.Basic.Deliver.unmarshal = _read_delivery_or_no_key  # type: ignore[assignment,method-assign]
