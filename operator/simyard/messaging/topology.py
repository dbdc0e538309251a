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
    identity_of,
    pool_queue,
    pool_user,
    worker_queue,
)

APISERVER_USER = "simyard-apiserver"
FRONTEND_USER = "simyard-frontend"
FRONTENDS_EXCHANGE = "simyard.frontends"
"""Between the replicas of a frontend: what was written (:mod:`simyard.frontend.replicas`)."""
DEAD_EXCHANGE = "simyard.dead"
DEAD_QUEUE = "simyard.dead.requests"
OPERATOR_QUEUE = "simyard.operator"
"""Events that must not be lost: the publisher is refused when it is full."""
OVERFLOW_EXCHANGE = "simyard.operator.overflow"
OVERFLOW_QUEUE = "simyard.operator.overflow"
"""Events that the operator did not take at the first attempt."""
REFUSED_EXCHANGE = "simyard.refused"
REFUSED_QUEUE = "simyard.refused"
"""Events that could not be handled, for people to look at; nobody consumes it, and the oldest go."""
UPDATES_QUEUE = "simyard.updates"
"""Events of which a newer one follows: the oldest are dropped when it is full."""
LASTING_EVENTS = (Event.REGISTER, Event.BEGUN, Event.RESULT, Event.DRAINED, Event.ACTIVE)
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
EVENT_DELIVERY_LIMIT = 20
LEADER_LOCATOR_VERSION = (3, 12)
"""From this version on the classic queues of RabbitMQ know the argument ``x-queue-leader-locator`` as well."""
NO_TRANSIENT_VERSION = (4, 3)
"""From this version on RabbitMQ refuses queues that are neither durable nor exclusive, unless told otherwise."""


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
class UserLimits:
    """How many connections and channels of a user there may be at a time."""

    connections: int
    channels: int

    @classmethod
    def of_pool(cls, workers: int) -> UserLimits:
        """Return what so many workers need, twice and some more, so that a worker's second connection finds room.

        An adapter has one connection with up to three channels. The limits change only when a pool has doubled.
        """
        connections = 16 + 2 * (1 << max(workers, 1).bit_length())
        return cls(connections, 4 * connections)


NO_USE = UserLimits(connections=0, channels=0)
"""The limits of a user that is cut off."""


@dataclass(frozen=True, slots=True)
class ExchangeSpec:
    """A durable exchange; ``kind`` is ``topic``, ``direct`` or ``fanout``."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Binding:
    """Messages of an exchange whose routing key matches go to the queue."""

    exchange: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue. ``arguments`` are the broker's optional ones, without ``x-queue-type``.

    A queue that is not ``durable`` is lost with the node of the broker that has it, and can be made again on another
    node; a durable classic queue cannot be used, deleted or declared until that node is back. The queues that are
    ``spread`` are on all nodes, others begin at the node that the operator is connected to.
    """

    name: str
    kind: QueueKind
    arguments: Mapping[str, str | int] = field(default_factory=lambda: MappingProxyType({}))
    bindings: tuple[Binding, ...] = ()
    durable: bool = True
    spread: bool = False

    def all_arguments(self, version: tuple[int, ...]) -> dict[str, str | int]:
        """Return the arguments as they are declared at a RabbitMQ of that version."""
        arguments = {"x-queue-type": self.kind.value, **self.arguments}
        if self.spread and version < LEADER_LOCATOR_VERSION:
            arguments["x-queue-master-locator"] = "random"
        elif self.spread:
            arguments["x-queue-leader-locator"] = "balanced"
        return arguments

    def is_durable(self, version: tuple[int, ...]) -> bool:
        """Return whether the queue is declared as durable at a RabbitMQ of that version."""
        return self.durable or version >= NO_TRANSIENT_VERSION


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """What a queue does, and may do otherwise in the next version: a queue's arguments cannot be changed."""

    queue: str
    definition: Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class PlatformSpec:
    """What exists once per installation, and the queues of earlier versions, which are deleted.

    Those had no replicas: a queue's type cannot change, so their successors have new names.
    """

    exchanges: tuple[ExchangeSpec, ...]
    queues: tuple[QueueSpec, ...]
    policies: tuple[PolicySpec, ...] = ()
    former_queues: tuple[str, ...] = ()


def pool_user_spec(pool_uid: str) -> UserSpec:
    """The user that all workers of a pool share, under its first login."""
    return worker_user_spec(pool_user(pool_uid))


def apiserver_user_spec() -> UserSpec:
    """The aggregated apiserver: sends requests to any queue, receives on exclusive queues of its own."""
    return _requester_user_spec(APISERVER_USER)


def frontend_user_spec() -> UserSpec:
    """The OCCI frontends: as the aggregated apiserver, and with an exchange on which replicas speak to each other."""
    return _requester_user_spec(FRONTEND_USER, "frontends")


def _requester_user_spec(name: str, *exchanges: str) -> UserSpec:
    own_queues = r"simyard\.(reply|attributes)\..+"
    return UserSpec(
        name=name,
        configure=f"^{own_queues}$",
        write="^(" + "|".join((r"amq\.default", *(rf"simyard\.{name}" for name in exchanges), own_queues)) + ")$",
        read=rf"^(simyard\.({'|'.join(('events', 'replies', *exchanges))})|{own_queues})$",
    )


def worker_queue_spec(user: str, worker_uid: str) -> QueueSpec:
    """The queue of one worker: cheap, because there are thousands.

    It is not durable: when its node is lost, the operator makes it anew and sends again what no worker has accepted.
    """
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
        durable=False,
        spread=True,
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

    An event that the operator rejects, or that :data:`EVENT_DELIVERY_LIMIT` consumers did not survive, goes to the
    overflow queue, and from there to the refused ones (:mod:`simyard.messaging.events` says how restarts do not count).
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
                tuple(Binding(EVENTS_EXCHANGE, f"{kind.value}.#") for kind in LASTING_EVENTS),
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
                tuple(Binding(EVENTS_EXCHANGE, f"{kind.value}.#") for kind in PASSING_EVENTS),
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


def worker_user_spec(login: str) -> UserSpec:
    """A login of the user of a pool, or of a worker without one: each login may do the same."""
    name = re.escape(identity_of(login))
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
