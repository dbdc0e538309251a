"""Limits of the messages of a worker. The adapter and the control plane check with the same figures."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

MAX_DEPTH = 32
"""Levels of arrays and objects in a message, the message itself included."""
MAX_VALUE_BYTES = 64 * KIB
"""Limit of the value of one attribute, as JSON. It is small because all attributes are sent together and often."""
MAX_ATTRIBUTES_BYTES = 256 * KIB
"""All attributes of a worker, as JSON: the Worker object in etcd holds them (1.5 MiB for the whole object)."""
MAX_RESULT_BYTES = MIB
"""The result of one action, as JSON: the ServiceAction in etcd holds it beside the parameters."""
MAX_LOG_BYTES = MIB
"""The log that one request returns, as JSON."""
MAX_ENVELOPE_BYTES = 128 * KIB
"""Limit of the rest of a message, beside attributes, a result or a log: identifiers, times, an error's message."""
MAX_BROKER_MESSAGE_BYTES = 4 * MIB + 2 * MAX_ENVELOPE_BYTES
"""The broker's ``max_message_size``. Adapters before this limit send results of up to 4 MiB, again and again until the
broker takes them; so the broker must take these, and the control plane then fails their actions."""
