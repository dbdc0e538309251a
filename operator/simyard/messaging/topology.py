# SPDX-License-Identifier: Apache-2.0
"""Specifications of the users, exchanges and queues at the broker, with the permissions of each user.

The module does no I/O. Each user has only the permissions that it needs. A worker's user may not declare queues,
because a declared queue could dead-letter messages into any other queue. It may read its own queues, and write to two
exchanges with routing keys that contain its own name. So it cannot send requests, and it cannot send replies or events
in the name of another user. RabbitMQ does not separate the permission to read a queue from the permission to purge it.
In RabbitMQ 3.x, the headers ``CC`` and ``BCC`` add routing keys that topic permissions do not check. So receivers
compare the routing key with ``user_id``, which the broker verifies.
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
    name_pool_queue,
    name_pool_user,
    name_worker_queue,
    parse_identity,
)

APISERVER_USER = "simyard-apiserver"
FRONTEND_USER = "simyard-frontend"
FRONTENDS_EXCHANGE = "simyard.frontends"
"""Exchange on which the replicas of a frontend announce their writes (:mod:`simyard.frontend.replicas`)."""
DEAD_EXCHANGE = "simyard.dead"
DEAD_QUEUE = "simyard.dead.requests"
OPERATOR_QUEUE = "simyard.operator"
"""Queue of events that must not be lost. When it is full, it refuses new events."""
OVERFLOW_EXCHANGE = "simyard.operator.overflow"
OVERFLOW_QUEUE = "simyard.operator.overflow"
"""Queue of events that the operator rejected at the first attempt."""
REFUSED_EXCHANGE = "simyard.refused"
REFUSED_QUEUE = "simyard.refused"
"""Queue of events that the operator could not handle. People inspect it. A full queue drops its oldest events."""
UPDATES_QUEUE = "simyard.updates"
"""Queue of events that newer events replace, or that workers repeat. When it is full, it drops its oldest events."""
REQUIRED_EVENTS = (Event.REGISTER, Event.BEGUN, Event.RESULT, Event.LOG, Event.DRAINED, Event.ACTIVE)
REPLACEABLE_EVENTS = (Event.ATTRIBUTES, Event.PROGRESS, Event.FILES)
WORKER_QUEUES_PREFIX = "simyard.worker."
REPLY_QUEUES_PREFIX = "simyard.reply."
"""Prefix of the exclusive queues in which senders of requests receive replies."""
ATTRIBUTE_QUEUES_PREFIX = "simyard.attributes."
"""Prefix of the exclusive queues in which processes receive changes of attributes."""

NOTHING = "^$"
WEEK_MS = 7 * 24 * 3600 * 1000
HOUR_MS = 3600 * 1000
MIB = 1024 * 1024
WORKER_QUEUE_MESSAGES = 1_000
POOL_QUEUE_MESSAGES = 10_000
POOL_DELIVERY_LIMIT = 5
EVENT_DELIVERY_LIMIT = 20
LEADER_LOCATOR_VERSION = (3, 12)
"""First version of RabbitMQ whose classic queues have the argument ``x-queue-leader-locator``."""
NO_TRANSIENT_VERSION = (4, 3)
"""First version of RabbitMQ that, by default, refuses a queue that is not durable and not exclusive."""


class QueueKind(enum.StrEnum):
    """A value of ``x-queue-type``. A quorum queue has replicas and counts deliveries; a classic queue costs less."""

    QUORUM = "quorum"
    CLASSIC = "classic"


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """A permission on a topic exchange: patterns of the routing keys to publish (``write``) and to bind (``read``)."""

    exchange: str
    write: str
    read: str = NOTHING


@dataclass(frozen=True, slots=True)
class UserSpec:
    """A broker user, with regular expressions for the names of the resources it may configure, write and read."""

    name: str
    configure: str
    write: str
    read: str
    topic_permissions: tuple[TopicPermission, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UserLimits:
    """The limits on concurrent connections and channels of a user."""

    connections: int
    channels: int

    @classmethod
    def of_pool(cls, workers: int) -> UserLimits:
        """Return limits of more than twice the need of a pool, so that each worker can open a second connection.

        An adapter has one connection with up to three channels. The limits change only when the size of the pool
        doubles or halves.
        """
        connections = 16 + 2 * (1 << max(workers, 1).bit_length())
        return cls(connections, 4 * connections)


NO_CONNECTIONS = UserLimits(connections=0, channels=0)
"""Limits of a user that is cut off."""


@dataclass(frozen=True, slots=True)
class ExchangeSpec:
    """A durable exchange; ``kind`` is ``topic``, ``direct`` or ``fanout``."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding of a queue to an exchange: messages whose routing key matches ``key`` go to the queue."""

    exchange: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue. ``arguments`` are the optional arguments of its declaration, without ``x-queue-type``.

    A queue that is not ``durable`` is lost with its node of the broker, and can be declared again on another node.
    While the node of a durable classic queue is down, the queue cannot be used, deleted or declared. Queues with
    ``spread`` are distributed over all nodes; other queues start on the node to which the operator is connected.
    """

    name: str
    kind: QueueKind
    arguments: Mapping[str, str | int] = field(default_factory=lambda: MappingProxyType({}))
    bindings: tuple[Binding, ...] = ()
    durable: bool = True
    spread: bool = False

    def build_arguments(self, version: tuple[int, ...]) -> dict[str, str | int]:
        """Return all arguments of the declaration for a version of RabbitMQ."""
        arguments = {"x-queue-type": self.kind.value, **self.arguments}
        if self.spread and version < LEADER_LOCATOR_VERSION:
            arguments["x-queue-master-locator"] = "random"
        elif self.spread:
            arguments["x-queue-leader-locator"] = "balanced"
        return arguments

    def is_durable(self, version: tuple[int, ...]) -> bool:
        """Return whether the queue is declared as durable for a version of RabbitMQ."""
        return self.durable or version >= NO_TRANSIENT_VERSION


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy of one queue: settings that a later version can change. The arguments of a queue cannot change."""

    queue: str
    definition: Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class PlatformSpec:
    """The exchanges, queues and policies of an installation, and the queues of earlier versions that must be deleted.

    Queues of earlier versions had no replicas. The type of a queue cannot change, so the new queues have new names.
    """

    exchanges: tuple[ExchangeSpec, ...]
    queues: tuple[QueueSpec, ...]
    policies: tuple[PolicySpec, ...] = ()
    former_queues: tuple[str, ...] = ()


def build_pool_user_spec(pool_uid: str) -> UserSpec:
    """Return the first login of the user that all workers of a pool share."""
    return build_worker_user_spec(name_pool_user(pool_uid))


def build_apiserver_user_spec() -> UserSpec:
    """Return the user of the aggregated apiserver, which may send requests to all queues and use exclusive queues."""
    return _requester_user_spec(APISERVER_USER)


def build_frontend_user_spec() -> UserSpec:
    """Return the user of the OCCI frontends: it has the apiserver's permissions, and may use the replicas' exchange."""
    return _requester_user_spec(FRONTEND_USER, "frontends")


def _requester_user_spec(name: str, *exchanges: str) -> UserSpec:
    own_queues = r"simyard\.(reply|attributes)\..+"
    return UserSpec(
        name=name,
        configure=f"^{own_queues}$",
        write="^(" + "|".join((r"amq\.default", *(rf"simyard\.{name}" for name in exchanges), own_queues)) + ")$",
        read=rf"^(simyard\.({'|'.join(('events', 'replies', *exchanges))})|{own_queues})$",
    )


def build_worker_queue_spec(user: str, worker_uid: str) -> QueueSpec:
    """Return the specification of a worker's queue. It is a classic queue, because there are thousands of them.

    The queue is not durable. When its node is lost, the operator declares the queue again, and again sends all requests
    that no worker has accepted.
    """
    return QueueSpec(
        name_worker_queue(user, worker_uid),
        QueueKind.CLASSIC,
        MappingProxyType(
            {
                "x-message-ttl": WEEK_MS,
                "x-max-length": WORKER_QUEUE_MESSAGES,
                "x-max-length-bytes": 64 * MIB,
                "x-overflow": "reject-publish",
            }
        ),
        durable=False,
        spread=True,
    )


def build_pool_queue_spec(user: str) -> QueueSpec:
    """Return the specification of the queue that the workers of a pool share.

    The broker moves a request to the dead-letter queue if it expires, or if :data:`POOL_DELIVERY_LIMIT` workers
    received it and did not finish it.
    """
    return QueueSpec(
        name_pool_queue(user),
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


def build_platform_specs() -> PlatformSpec:
    """Return the specifications of the exchanges and queues of an installation.

    The broker moves an event to the overflow queue if the operator rejects it, or if :data:`EVENT_DELIVERY_LIMIT`
    consumers ended while they held it. For the same reasons, it moves the event from there to the queue of refused
    events. :mod:`simyard.messaging.events` explains why restarts do not use up the limit.
    """
    return PlatformSpec(
        exchanges=(
            ExchangeSpec(EVENTS_EXCHANGE, "topic"),
            ExchangeSpec(REPLIES_EXCHANGE, "topic"),
            ExchangeSpec(FRONTENDS_EXCHANGE, "direct"),
            ExchangeSpec(DEAD_EXCHANGE, "fanout"),
            ExchangeSpec(OVERFLOW_EXCHANGE, "fanout"),
            ExchangeSpec(REFUSED_EXCHANGE, "fanout"),
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
                tuple(Binding(EVENTS_EXCHANGE, f"{kind.value}.#") for kind in REQUIRED_EVENTS),
            ),
            QueueSpec(
                OVERFLOW_QUEUE,
                QueueKind.QUORUM,
                MappingProxyType(
                    {
                        "x-max-length": 100_000,
                        "x-max-length-bytes": 256 * MIB,
                        "x-overflow": "drop-head",
                        "x-delivery-limit": EVENT_DELIVERY_LIMIT,
                        "x-dead-letter-exchange": REFUSED_EXCHANGE,
                    }
                ),
                (Binding(OVERFLOW_EXCHANGE),),
            ),
            QueueSpec(
                REFUSED_QUEUE,
                QueueKind.QUORUM,
                MappingProxyType({"x-message-ttl": WEEK_MS, "x-max-length": 1_000, "x-max-length-bytes": 16 * MIB}),
                (Binding(REFUSED_EXCHANGE),),
            ),
            QueueSpec(
                UPDATES_QUEUE,
                QueueKind.QUORUM,
                MappingProxyType({"x-message-ttl": HOUR_MS, "x-max-length": 100_000, "x-max-length-bytes": 256 * MIB}),
                tuple(Binding(EVENTS_EXCHANGE, f"{kind.value}.#") for kind in REPLACEABLE_EVENTS),
            ),
            QueueSpec(
                DEAD_QUEUE,
                QueueKind.QUORUM,
                MappingProxyType({"x-message-ttl": WEEK_MS, "x-max-length": 100_000, "x-max-length-bytes": 256 * MIB}),
                (Binding(DEAD_EXCHANGE),),
            ),
        ),
        policies=(
            PolicySpec(
                OPERATOR_QUEUE,
                MappingProxyType(
                    {
                        "delivery-limit": EVENT_DELIVERY_LIMIT,
                        "dead-letter-exchange": OVERFLOW_EXCHANGE,
                        "dead-letter-strategy": "at-least-once",
                    }
                ),
            ),
        ),
        former_queues=("simyard.dead", "simyard.operator.updates"),
    )


def build_worker_user_spec(login: str) -> UserSpec:
    """Return a login of the user of a pool, or of a worker without a pool. All logins have the same permissions."""
    name = re.escape(parse_identity(login))
    return UserSpec(
        name=login,
        configure=NOTHING,
        write=r"^simyard\.(events|replies)$",
        read=rf"^simyard\.(pool\.{name}|worker\.{name}\.[^.]+)$",
        topic_permissions=(
            TopicPermission(EVENTS_EXCHANGE, write=rf"^[a-z]+\.{name}\.[^.]+$"),
            TopicPermission(REPLIES_EXCHANGE, write=rf"^reply\.[^.]+\.{name}$"),
        ),
    )
