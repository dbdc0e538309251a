# SPDX-License-Identifier: Apache-2.0
"""Specifications for the virtual host of OCCI clients: its users, exchanges and queues. The module does no I/O.

The Cloud4E binding sends answers through the default exchange. RabbitMQ cannot restrict the default exchange to certain
queues: a user that may write to it can put a message into any queue of the virtual host. So OCCI clients have a virtual
host of their own, in which they cannot reach the queues of workers and of the operator. Clients can send messages to
each other, but this does no harm: each request has its own credentials, and nobody can guess the names of reply queues.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from simyard.messaging.topology import (
    DEAD_EXCHANGE,
    DEAD_QUEUE,
    FRONTEND_USER,
    MIB,
    REPLY_QUEUES_PREFIX,
    Binding,
    ExchangeSpec,
    PlatformSpec,
    QueueKind,
    QueueSpec,
    UserSpec,
)

VHOST_SUFFIX = "-occi"
VHOST_KEY = "occi_vhost"
"""Key of the clients' virtual host in the frontends' Secret; absent if the installation has none."""
REQUEST_QUEUES_PREFIX = "amqp.occi."
SERVICE_QUEUES_PREFIX = "occi.amqp.service."
"""Prefix of the queues of foreign service adapters; the adapter's broker user follows. Actions go only to them."""
PULL_SUFFIX = "-reply"
"""Suffix of the queue in which a foreign service adapter answers requests for its attributes."""
REQUEST_TTL_MS = 30_000
REQUEST_MESSAGES = 10_000
REQUEST_DELIVERY_LIMIT = 5
DEAD_TTL_MS = 24 * 3600 * 1000
"""Time for which dead-lettered requests are kept. They contain their senders' tokens; only administrators read them."""

_SERVICE_QUEUE = rf"{re.escape(SERVICE_QUEUES_PREFIX)}[^.]+(\.[^.]+)?"
_ANSWERS = rf"{re.escape(REPLY_QUEUES_PREFIX)}.+|{_SERVICE_QUEUE}{PULL_SUFFIX}"


def name_clients_vhost(vhost: str) -> str:
    """Return the name of the OCCI clients' virtual host, for the installation in the virtual host ``vhost``."""
    return f"{vhost.strip('/') or 'simyard'}{VHOST_SUFFIX}"


def name_request_queue(endpoint: str) -> str:
    """Return the name, by Cloud4E's rule, of the queue that all frontends of an ``endpoint`` (an HTTP URL) share."""
    return f"{REQUEST_QUEUES_PREFIX}{endpoint.rstrip('/')}/"


def build_request_queue_spec(endpoint: str, kind: QueueKind) -> QueueSpec:
    """Return the specification of the queue that all frontends of an endpoint share.

    The broker moves a request to the dead-letter queue if it expires, or if several frontends received it and did not
    finish it. A classic queue does not count deliveries; in it, such a request ends when it expires.
    """
    arguments: dict[str, str | int] = {
        "x-message-ttl": REQUEST_TTL_MS,
        "x-max-length": REQUEST_MESSAGES,
        "x-max-length-bytes": 256 * MIB,
        "x-overflow": "reject-publish",
        "x-dead-letter-exchange": DEAD_EXCHANGE,
    }
    if kind is QueueKind.QUORUM:
        arguments |= {"x-delivery-limit": REQUEST_DELIVERY_LIMIT, "x-dead-letter-strategy": "at-least-once"}
    return QueueSpec(name_request_queue(endpoint), kind, MappingProxyType(arguments))


def build_clients_specs() -> PlatformSpec:
    """Return the exchanges and queues of the clients' virtual host that do not belong to one endpoint."""
    return PlatformSpec(
        exchanges=(ExchangeSpec(DEAD_EXCHANGE, "fanout"),),
        queues=(
            QueueSpec(
                DEAD_QUEUE,
                QueueKind.QUORUM,
                MappingProxyType(
                    {"x-message-ttl": DEAD_TTL_MS, "x-max-length": 10_000, "x-max-length-bytes": 64 * MIB}
                ),
                (Binding(DEAD_EXCHANGE),),
            ),
        ),
        former_queues=("simyard.dead",),
    )


def build_frontend_clients_user_spec() -> UserSpec:
    """Return the frontends' user in the clients' virtual host, with its permissions."""
    return UserSpec(
        name=FRONTEND_USER,
        configure=f"^({_ANSWERS})$",
        write=r"^amq\.default$",
        read=rf"^({re.escape(REQUEST_QUEUES_PREFIX)}.+|{_ANSWERS})$",
    )


def build_client_user_spec(name: str, *, serves: bool = False) -> UserSpec:
    """Return the user of a tenant, with the permissions to send requests, and to declare and read reply queues.

    The name of a reply queue has one of three forms: a name by the broker (``amq.gen-``), the user's name with a dot
    and further text, or random numbers with dots, as Cloud4E's client uses. With ``serves``, the user also reads the
    queues of its own service adapters. Their names are the prefix and the user's name, optionally with a dot and a
    word.
    """
    own = rf"amq\.gen.*|{re.escape(name)}\..+|[0-9]+\.[0-9.e-]+"
    if serves:
        own += rf"|{re.escape(SERVICE_QUEUES_PREFIX + name)}(\.[^.]+)?"
    return UserSpec(name=name, configure=f"^({own})$", write=r"^amq\.default$", read=f"^({own})$")
