# SPDX-License-Identifier: Apache-2.0
"""Specifications of the users, exchanges and queues at the broker, with the permissions of each user. Pure.

Each user has the least privilege. A worker's user declares nothing, because a declared queue can reach any other queue
by dead-lettering. It reads its own queues, and writes to two exchanges under its own name only. So it cannot send
requests, and it cannot send replies or events in the name of another user. The permission to read a queue includes the
permission to purge it. The headers ``CC`` and ``BCC`` add routing keys that escape the topic permissions of RabbitMQ
3.x. Therefore receivers compare the routing key with ``user_id``, which the broker verifies.
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
"""Queue of events that must not be lost; a full queue refuses new events."""
OVERFLOW_EXCHANGE = "simyard.operator.overflow"
OVERFLOW_QUEUE = "simyard.operator.overflow"
"""Queue of events that the operator rejected at the first attempt."""
REFUSED_EXCHANGE = "simyard.refused"
REFUSED_QUEUE = "simyard.refused"
"""Queue of events that could not be handled. People inspect it; it has no consumer and drops its oldest events."""
UPDATES_QUEUE = "simyard.updates"
"""Queue of events that newer events replace, or that workers repeat; a full queue drops its oldest events."""
REQUIRED_EVENTS = (Event.REGISTER, Event.BEGUN, Event.RESULT, Event.LOG, Event.DRAINED, Event.ACTIVE)
REPLACEABLE_EVENTS = (Event.ATTRIBUTES, Event.PROGRESS, Event.FILES)
WORKER_QUEUES_PREFIX = "simyard.worker."
REPLY_QUEUES_PREFIX = "simyard.reply."
"""Prefix of the exclusive queues in which senders of requests receive replies."""
ATTRIBUTE_QUEUES_PREFIX = "simyard.attributes."
"""Prefix of the exclusive queues of processes that follow attributes."""

NOTHING = "^$"
WEEK_MS = 7 * 24 * 3600 * 1000
HOUR_MS = 3600 * 1000
MIB = 1024 * 1024
WORKER_QUEUE_MESSAGES = 1_000
POOL_QUEUE_MESSAGES = 10_000
POOL_DELIVERY_LIMIT = 5
EVENT_DELIVERY_LIMIT = 20
LEADER_LOCATOR_VERSION = (3, 12)
"""First version of RabbitMQ whose classic queues know the argument ``x-queue-leader-locator``."""
NO_TRANSIENT_VERSION = (4, 3)
"""First version of RabbitMQ that by default refuses queues that are neither durable nor exclusive."""


class QueueKind(enum.StrEnum):
    """A value of ``x-queue-type``: a quorum queue is replicated and counts deliveries, a classic queue is cheap."""

    QUORUM = "quorum"
    CLASSIC = "classic"


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """A permission on a topic exchange: patterns of routing keys for publishing (``write``) and binding (``read``)."""

    exchange: str
    write: str
    read: str = NOTHING


@dataclass(frozen=True, slots=True)
class UserSpec:
    """A broker user, with regular expressions for the resources that it may configure, write and read."""

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
        """Return limits above twice the need of a pool, so that each worker can open a second connection.

        An adapter has one connection with up to three channels. The limits change only when the pool doubles.
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
    """A binding of a queue to an exchange; messages whose routing key matches go to the queue."""

    exchange: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue. ``arguments`` are the optional arguments of its declaration, without ``x-queue-type``.

    A queue that is not ``durable`` is lost with its node of the broker, and can be declared again on another node. A
    durable classic queue cannot be used, deleted or declared until its node is back. Queues with ``spread`` are spread
    over all nodes; other queues start on the node that the operator is connected to.
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
    """A policy of one queue: settings that later versions may change, unlike a queue's arguments."""

    queue: str
    definition: Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class PlatformSpec:
    """The exchanges, queues and policies of an installation, and the queues of earlier versions to delete.

    The earlier queues had no replicas. The type of a queue cannot change, so their successors have new names.
    """

    exchanges: tuple[ExchangeSpec, ...]
    queues: tuple[QueueSpec, ...]
    policies: tuple[PolicySpec, ...] = ()
    former_queues: tuple[str, ...] = ()


def build_pool_user_spec(pool_uid: str) -> UserSpec:
    """Return the user that all workers of a pool share, under its first login."""
    return build_worker_user_spec(name_pool_user(pool_uid))


def build_apiserver_user_spec() -> UserSpec:
    """Return the user of the aggregated apiserver: it sends requests to any queue, and has exclusive queues."""
    return _requester_user_spec(APISERVER_USER)


def build_frontend_user_spec() -> UserSpec:
    """Return the user of the OCCI frontends: the rights of the apiserver's user, and the replicas' exchange."""
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
    """Return the queue of one worker: a classic queue, because there are thousands.

    The queue is not durable. When its node is lost, the operator declares it again, and sends again all requests that
    no worker has accepted.
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
    """Return the queue that the workers of a pool share.

    The broker dead-letters requests that expire, and requests that :data:`POOL_DELIVERY_LIMIT` workers did not finish.
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
    """Return the exchanges and queues of the operator.

    An event goes to the overflow queue if the operator rejects it, or if :data:`EVENT_DELIVERY_LIMIT` consumers ended
    while they held it. From there it goes to the queue of refused events for the same reasons.
    :mod:`simyard.messaging.events` explains why restarts do not use up that limit.
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
    """Return a login of the user of a pool, or of a worker without a pool; all logins have the same rights."""
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
