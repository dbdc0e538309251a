"""Which users, exchanges and queues there are, and what each user may do: data, no I/O.

Least privilege: a worker's user declares nothing (one who may declare can reach any queue by dead-lettering), reads its
own queues, writes the two exchanges under its own name only, and so can neither inject a request nor a reply or event
in another's name. Purging one's own queue cannot be told from reading it. Routing keys added by the headers ``CC`` and
``BCC`` escape the topic permissions of RabbitMQ 3.x: that is why receivers check ``user_id``, which the broker vouches
for, against the routing key.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from simyard_adapter.wire import (
    EVENTS_EXCHANGE,
    REPLIES_EXCHANGE,
    Event,
    pool_queue,
    pool_user,
    standalone_user,
    worker_queue,
)

APISERVER_USER = "simyard-apiserver"
FRONTEND_USER = "simyard-frontend"
DEAD_EXCHANGE = "simyard.dead"
DEAD_QUEUE = "simyard.dead"
OPERATOR_QUEUE = "simyard.operator"
"""Events that must not be lost: the publisher is refused when it is full."""
UPDATES_QUEUE = "simyard.operator.updates"
"""Events of which a newer one follows: the oldest are dropped when it is full."""
LASTING_EVENTS = (Event.REGISTER, Event.RESULT, Event.DRAINED, Event.ACTIVE)
PASSING_EVENTS = (Event.ATTRIBUTES, Event.PROGRESS)
WORKER_QUEUES_PREFIX = "simyard.worker."
REPLY_QUEUES_PREFIX = "simyard.reply."
"""Exclusive queues of those who send requests."""
ATTRIBUTE_QUEUES_PREFIX = "simyard.attributes."
"""Exclusive queues of those who follow attributes."""

NOTHING = "^$"
WEEK_MS = 7 * 24 * 3600 * 1000
HOUR_MS = 3600 * 1000
MIB = 1024 * 1024
WORKER_QUEUE_MESSAGES = 1_000
POOL_QUEUE_MESSAGES = 10_000
POOL_DELIVERY_LIMIT = 5


class QueueKind(enum.StrEnum):
    """``x-queue-type``: a quorum queue is replicated and counts deliveries, a classic one is cheap."""

    QUORUM = "quorum"
    CLASSIC = "classic"


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """Which routing keys a user may write to, and bind queues to (``read``), on a topic exchange."""

    exchange: str
    write: str
    read: str = NOTHING


@dataclass(frozen=True, slots=True)
class UserSpec:
    """A broker user: regular expressions of what it may configure, write and read."""

    name: str
    configure: str
    write: str
    read: str
    topic_permissions: tuple[TopicPermission, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExchangeSpec:
    """A durable exchange; ``kind`` is ``topic`` or ``fanout``."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Binding:
    """Messages of an exchange whose routing key matches go to the queue."""

    exchange: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A durable queue. ``arguments`` are the broker's optional ones, without ``x-queue-type``."""

    name: str
    kind: QueueKind
    arguments: Mapping[str, str | int] = field(default_factory=lambda: MappingProxyType({}))
    bindings: tuple[Binding, ...] = ()

    def all_arguments(self) -> dict[str, str | int]:
        """The arguments as they are declared."""
        return {"x-queue-type": self.kind.value, **self.arguments}


@dataclass(frozen=True, slots=True)
class PlatformSpec:
    """What exists once per installation."""

    exchanges: tuple[ExchangeSpec, ...]
    queues: tuple[QueueSpec, ...]


def pool_user_spec(pool_uid: str) -> UserSpec:
    """The user that all workers of a pool share."""
    return _worker_user_spec(pool_user(pool_uid))


def standalone_user_spec(worker_uid: str) -> UserSpec:
    """The user of a worker without a pool."""
    return _worker_user_spec(standalone_user(worker_uid))


def apiserver_user_spec() -> UserSpec:
    """The aggregated apiserver: sends requests to any queue, receives on exclusive queues of its own."""
    return _requester_user_spec(APISERVER_USER)


def frontend_user_spec() -> UserSpec:
    """The OCCI frontends: as the aggregated apiserver."""
    return _requester_user_spec(FRONTEND_USER)


def _requester_user_spec(name: str) -> UserSpec:
    own_queues = r"simyard\.(reply|attributes)\..+"
    return UserSpec(
        name=name,
        configure=f"^{own_queues}$",
        write=rf"^(amq\.default|{own_queues})$",
        read=rf"^(simyard\.(events|replies)|{own_queues})$",
    )


def worker_queue_spec(user: str, worker_uid: str) -> QueueSpec:
    """The queue of one worker: cheap, because there are thousands."""
    return QueueSpec(
        worker_queue(user, worker_uid),
        QueueKind.CLASSIC,
        MappingProxyType(
            {
                "x-message-ttl": WEEK_MS,
                "x-max-length": WORKER_QUEUE_MESSAGES,
                "x-max-length-bytes": 64 * MIB,
                "x-overflow": "reject-publish",
            }
        ),
    )


def pool_queue_spec(user: str) -> QueueSpec:
    """The queue that the workers of a pool share.

    A request that :data:`POOL_DELIVERY_LIMIT` workers could not finish, and one that expired, is dead-lettered.
    """
    return QueueSpec(
        pool_queue(user),
        QueueKind.QUORUM,
        MappingProxyType(
            {
                "x-message-ttl": WEEK_MS,
                "x-max-length": POOL_QUEUE_MESSAGES,
                "x-max-length-bytes": 256 * MIB,
                "x-overflow": "reject-publish",
                "x-delivery-limit": POOL_DELIVERY_LIMIT,
                "x-dead-letter-exchange": DEAD_EXCHANGE,
                "x-dead-letter-strategy": "at-least-once",
            }
        ),
    )


def platform_specs() -> PlatformSpec:
    """The exchanges and the queues of the operator.

    ``x-delivery-limit`` of the operator's queue is out of reach: it may restart often, and nothing must be dropped.
    """
    return PlatformSpec(
        exchanges=(
            ExchangeSpec(EVENTS_EXCHANGE, "topic"),
            ExchangeSpec(REPLIES_EXCHANGE, "topic"),
            ExchangeSpec(DEAD_EXCHANGE, "fanout"),
        ),
        queues=(
            QueueSpec(
                OPERATOR_QUEUE,
                QueueKind.QUORUM,
                MappingProxyType(
                    {
                        "x-max-length": 1_000_000,
                        "x-max-length-bytes": 1024 * MIB,
                        "x-overflow": "reject-publish",
                        "x-delivery-limit": 1_000_000,
                    }
                ),
                tuple(Binding(EVENTS_EXCHANGE, f"{kind.value}.#") for kind in LASTING_EVENTS),
            ),
            QueueSpec(
                UPDATES_QUEUE,
                QueueKind.CLASSIC,
                MappingProxyType({"x-message-ttl": HOUR_MS, "x-max-length": 100_000, "x-max-length-bytes": 256 * MIB}),
                tuple(Binding(EVENTS_EXCHANGE, f"{kind.value}.#") for kind in PASSING_EVENTS),
            ),
            QueueSpec(
                DEAD_QUEUE,
                QueueKind.CLASSIC,
                MappingProxyType({"x-message-ttl": WEEK_MS, "x-max-length": 100_000, "x-max-length-bytes": 256 * MIB}),
                (Binding(DEAD_EXCHANGE),),
            ),
        ),
    )


def _worker_user_spec(user: str) -> UserSpec:
    name = re.escape(user)
    return UserSpec(
        name=user,
        configure=NOTHING,
        write=r"^simyard\.(events|replies)$",
        read=rf"^simyard\.(pool\.{name}|worker\.{name}\.[^.]+)$",
        topic_permissions=(
            TopicPermission(EVENTS_EXCHANGE, write=rf"^[a-z]+\.{name}\.[^.]+$"),
            TopicPermission(REPLIES_EXCHANGE, write=rf"^reply\.[^.]+\.{name}$"),
        ),
    )
