# SPDX-License-Identifier: Apache-2.0
"""The size limits of a worker's messages. The adapter and the control plane apply the same limits."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

MAX_DEPTH = 32
"""Limit of the nested arrays and objects in a message, including the message itself."""
MAX_VALUE_BYTES = 64 * KIB
"""Limit of the JSON value of one attribute. It is small because all attributes are sent together and often."""
MAX_ATTRIBUTES_BYTES = 256 * KIB
"""Limit of all attributes of a worker as JSON: the Worker object in etcd stores them (1.5 MiB for the whole object)."""
MAX_RESULT_BYTES = MIB
"""Limit of the result of one action as JSON: the ServiceAction in etcd stores it beside the parameters."""
MAX_LOG_BYTES = MIB
"""Limit of the log in one reply, as JSON."""
MAX_LOG_PARTS = 64
"""Limit of the parts in which the log of an action is stored: the ServiceAction in etcd names all of them."""
MAX_ENVELOPE_BYTES = 128 * KIB
"""Limit of the other fields of a message: identifiers, times and error messages."""
MAX_BROKER_MESSAGE_BYTES = 4 * MIB + 2 * MAX_ENVELOPE_BYTES
"""The broker's ``max_message_size``.

Older adapters send results of up to 4 MiB, and repeat them until the broker accepts them. The broker must therefore
accept these messages; the control plane then fails their actions.
"""
