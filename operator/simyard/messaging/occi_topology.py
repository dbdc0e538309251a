# SPDX-License-Identifier: Apache-2.0
"""Specifications of the clients' virtual host for OCCI over AMQP: its users, and the queue of the frontends. Pure.

The Cloud4E binding sends answers through the default exchange. No permission restricts the default exchange to certain
queues: a user that may write to it can put a message into any queue of its virtual host. Therefore OCCI clients have
their own virtual host, from which they reach neither the workers' queues nor the operator's. Clients can send messages
to each other but not read them: each request carries its own credentials, and names of reply queues cannot be guessed.
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
"""Prefix of the queues of foreign service adapters, before the adapter's broker user; actions go only to them."""
PULL_SUFFIX = "-reply"
"""Suffix of the queue in which a foreign service adapter answers requests for its attributes."""
REQUEST_TTL_MS = 30_000
REQUEST_MESSAGES = 10_000
REQUEST_DELIVERY_LIMIT = 5
DEAD_TTL_MS = 24 * 3600 * 1000
"""Dead-lettered requests contain the sender's token: only the administrator can read them, for a day."""

_SERVICE_QUEUE = rf"{re.escape(SERVICE_QUEUES_PREFIX)}[^.]+(\.[^.]+)?"
_ANSWERS = rf"{re.escape(REPLY_QUEUES_PREFIX)}.+|{_SERVICE_QUEUE}{PULL_SUFFIX}"


def name_clients_vhost(vhost: str) -> str:
    """Return the virtual host of the OCCI clients of the installation in ``vhost``."""
    return f"{vhost.strip('/') or 'simyard'}{VHOST_SUFFIX}"


def name_request_queue(endpoint: str) -> str:
    """Return the queue that all frontends of an endpoint share, as Cloud4E names it. ``endpoint`` is an HTTP URL."""
    return f"{REQUEST_QUEUES_PREFIX}{endpoint.rstrip('/')}/"


def build_request_queue_spec(endpoint: str, kind: QueueKind) -> QueueSpec:
    """Return the queue of the frontends.

    Requests that expire, and requests that several frontends did not finish, are dead-lettered. A classic queue does
    not count deliveries: there a request that no frontend can finish ends by its age.
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
    """Return the exchanges and queues that exist once in the clients' virtual host."""
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
    """Return the frontends' user in the clients' virtual host: it reads requests, and answers on its own queues."""
    return UserSpec(
        name=FRONTEND_USER,
        configure=f"^({_ANSWERS})$",
        write=r"^amq\.default$",
        read=rf"^({re.escape(REQUEST_QUEUES_PREFIX)}.+|{_ANSWERS})$",
    )


def build_client_user_spec(name: str, *, serves: bool = False) -> UserSpec:
    """Return the user of a tenant, which sends requests, and declares and reads reply queues.

    The name of a reply queue has one of three forms: the broker's own (``amq.gen-``), the user's name with a dot and
    more text, or the random numbers with dots of Cloud4E's client. With ``serves``, the user also reads the queues of
    its own service adapters: the prefix with the user's name, optionally with a dot and a word.
    """
    own = rf"amq\.gen.*|{re.escape(name)}\..+|[0-9]+\.[0-9.e-]+"
    if serves:
        own += rf"|{re.escape(SERVICE_QUEUES_PREFIX + name)}(\.[^.]+)?"
    return UserSpec(name=name, configure=f"^({own})$", write=r"^amq\.default$", read=f"^({own})$")
