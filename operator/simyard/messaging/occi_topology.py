"""What OCCI clients need at the broker: a virtual host, the frontends' shared queue, and users. Data, no I/O.

The Cloud4E binding answers by the default exchange, which no permission can restrict by queue: who may write to it can
put a message into any queue of its virtual host. So clients have a virtual host without anything else in it: neither a
worker's queue nor the operator's can be reached from there. What they can do to each other is to send messages, not to
read any: a request carries its own credentials, and the names of reply queues are not to be guessed.
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
"""In the frontends' Secret beside the keys of an access: the clients' virtual host; absent where there is none."""
REQUEST_QUEUES_PREFIX = "amqp.occi."
SERVICE_QUEUES_PREFIX = "occi.amqp.service."
"""Queues of foreign service adapters, followed by the broker user of the adapter: only to these are actions sent."""
PULL_SUFFIX = "-reply"
"""Of the queue where a foreign service adapter answers a pull of its attributes."""
REQUEST_TTL_MS = 30_000
REQUEST_MESSAGES = 10_000
REQUEST_DELIVERY_LIMIT = 5
DEAD_TTL_MS = 24 * 3600 * 1000
"""Dead requests hold their sender's token: kept for a day, readable by the administrator alone."""

_SERVICE_QUEUE = rf"{re.escape(SERVICE_QUEUES_PREFIX)}[^.]+(\.[^.]+)?"
_ANSWERS = rf"{re.escape(REPLY_QUEUES_PREFIX)}.+|{_SERVICE_QUEUE}{PULL_SUFFIX}"


def clients_vhost(vhost: str) -> str:
    """The virtual host of the OCCI clients of the installation in ``vhost``."""
    return f"{vhost.strip('/') or 'simyard'}{VHOST_SUFFIX}"


def request_queue(endpoint: str) -> str:
    """The queue that all frontends of an endpoint (the URL of its HTTP face) share: Cloud4E's name for it."""
    return f"{REQUEST_QUEUES_PREFIX}{endpoint.rstrip('/')}/"


def request_queue_spec(endpoint: str, kind: QueueKind) -> QueueSpec:
    """The shared queue; a request that expires there, or that several frontends could not finish, is kept as dead.

    A classic queue counts no deliveries: what it gives back again and again ends by its age.
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
    return QueueSpec(request_queue(endpoint), kind, MappingProxyType(arguments))


def clients_specs() -> PlatformSpec:
    """What exists once in the clients' virtual host."""
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


def frontend_clients_user_spec() -> UserSpec:
    """The frontends in the clients' virtual host: they read requests, and answers on queues that they make for it."""
    return UserSpec(
        name=FRONTEND_USER,
        configure=f"^({_ANSWERS})$",
        write=r"^amq\.default$",
        read=rf"^({re.escape(REQUEST_QUEUES_PREFIX)}.+|{_ANSWERS})$",
    )


def client_user_spec(name: str, *, serves: bool = False) -> UserSpec:
    """A tenant's user: sends requests, and makes and reads reply queues.

    Reply queues are named by the broker (``amq.gen-``), begin with the user's name and a dot, or are the random numbers
    with dots that Cloud4E's client makes. With ``serves`` also the queues of its own service adapters, and nobody
    else's: the prefix with its name, or that with a dot and a word.
    """
    own = rf"amq\.gen.*|{re.escape(name)}\..+|[0-9]+\.[0-9.e-]+"
    if serves:
        own += rf"|{re.escape(SERVICE_QUEUES_PREFIX + name)}(\.[^.]+)?"
    return UserSpec(name=name, configure=f"^({own})$", write=r"^amq\.default$", read=f"^({own})$")
