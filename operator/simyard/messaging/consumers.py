# SPDX-License-Identifier: Apache-2.0
"""The consumers of the workers' queues, computed from the broker's events. The module does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

CREATED = "consumer.created"
DELETED = "consumer.deleted"
CHANNEL_CLOSED = "channel.closed"
CONNECTION_CLOSED = "connection.closed"
QUEUE_DELETED = "queue.deleted"


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer of a queue, with its consumer tag."""

    queue: str
    tag: str


@dataclass(frozen=True, slots=True)
class ConsumerEvent:
    """A broker event: a consumer was ``created`` or has ended, or a carrier was closed with all its consumers.

    A carrier is a channel or a connection. The name of a channel is the name of its process in the broker. ``consumer``
    is None if the carrier was closed.
    """

    consumer: Consumer | None
    carrier: str = ""
    created: bool = False

    @classmethod
    def read(cls, key: str, headers: Mapping[str, object]) -> ConsumerEvent:
        """Read the event from the routing key and the headers of a message of ``rabbitmq_event_exchange``.

        RabbitMQ 3.10 reports the end of each consumer. RabbitMQ 4.0 does not report the end of a classic queue's
        consumer if its channel or connection ends; it reports only the end of the channel or connection.
        """
        if key == CHANNEL_CLOSED:
            return cls(None, str(headers.get("pid")))
        if key == CONNECTION_CLOSED:
            return cls(None, str(headers.get("name")))
        consumer = Consumer(str(headers.get("queue")), str(headers.get("consumer_tag")))
        return cls(consumer, str(headers.get("channel")), key == CREATED)


class Consumers:
    """All known consumers by queue, and the channels and connections that carry them."""

    def __init__(self, snapshot: Mapping[Consumer, str] | None = None) -> None:
        """Begin with a ``snapshot``: consumers, each with the name of its connection."""
        self._tags: dict[str, set[str]] = {}
        self._carriers: dict[Consumer, set[str]] = {}
        self._carried: dict[str, set[Consumer]] = {}
        for consumer, connection in (snapshot or {}).items():
            self._add(consumer, connection)

    @property
    def queues(self) -> frozenset[str]:
        """The names of the queues that have a consumer."""
        return frozenset(self._tags)

    def __contains__(self, queue: str) -> bool:
        return queue in self._tags

    def __len__(self) -> int:
        return len(self._tags)

    def apply_event(self, event: ConsumerEvent) -> frozenset[str]:
        """Apply an event; return the queues that got their first consumer or lost their last consumer."""
        if event.consumer is None:
            return self._remove(self._carried.get(event.carrier, ()))
        if not event.created:
            return self._remove((event.consumer,))
        new = event.consumer.queue not in self._tags
        self._add(event.consumer, event.carrier)
        return frozenset({event.consumer.queue} if new else ())

    def correct(self, found: Consumers, gone: frozenset[str]) -> frozenset[str]:
        """Add the queues that only ``found`` has, and remove the queues in ``gone``; return all changed queues."""
        new = found.queues - self.queues
        for queue in new:
            for consumer in (Consumer(queue, tag) for tag in found._tags[queue]):
                for carrier in found._carriers[consumer]:
                    self._add(consumer, carrier)
        lost = [Consumer(queue, tag) for queue in gone for tag in self._tags.get(queue, ())]
        return new | self._remove(lost)

    def _add(self, consumer: Consumer, carrier: str) -> None:
        self._tags.setdefault(consumer.queue, set()).add(consumer.tag)
        self._carriers.setdefault(consumer, set()).add(carrier)
        self._carried.setdefault(carrier, set()).add(consumer)

    def _remove(self, consumers: Iterable[Consumer]) -> frozenset[str]:
        emptied = set()
        for consumer in tuple(consumers):
            for carrier in self._carriers.pop(consumer, ()):
                self._carried[carrier].discard(consumer)
                if not self._carried[carrier]:
                    del self._carried[carrier]
            tags = self._tags.get(consumer.queue, set())
            tags.discard(consumer.tag)
            if not tags and self._tags.pop(consumer.queue, None) is not None:
                emptied.add(consumer.queue)
        return frozenset(emptied)
