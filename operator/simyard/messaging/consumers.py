"""The consumers of workers' queues, from what the broker tells of them; no I/O."""

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
    """One consumer of a queue."""

    queue: str
    tag: str


@dataclass(frozen=True, slots=True)
class ConsumerEvent:
    """A consumer came (``created``) or went, or all went that a carrier had (``consumer`` is None).

    A carrier is a channel, by the name of its process, or a connection, by its name.
    """

    consumer: Consumer | None
    carrier: str = ""
    created: bool = False

    @classmethod
    def read(cls, key: str, headers: Mapping[str, object]) -> ConsumerEvent:
        """Read the routing key and the headers of a message of ``rabbitmq_event_exchange``.

        RabbitMQ 3.10 tells of each consumer that goes, for whatever reason. 4.0 does not when a channel or connection
        ends that consumed a classic queue: of that it tells only the end itself.
        """
        if key == CHANNEL_CLOSED:
            return cls(None, str(headers.get("pid")))
        if key == CONNECTION_CLOSED:
            return cls(None, str(headers.get("name")))
        consumer = Consumer(str(headers.get("queue")), str(headers.get("consumer_tag")))
        return cls(consumer, str(headers.get("channel")), key == CREATED)


class Consumers:
    """Which queues have consumers, and what carries these."""

    def __init__(self, snapshot: Mapping[Consumer, str] | None = None) -> None:
        """``snapshot``: consumers with the names of their connections."""
        self._tags: dict[str, set[str]] = {}
        self._carriers: dict[Consumer, set[str]] = {}
        self._carried: dict[str, set[Consumer]] = {}
        for consumer, connection in (snapshot or {}).items():
            self._add(consumer, connection)

    @property
    def queues(self) -> frozenset[str]:
        """The queues that have any."""
        return frozenset(self._tags)

    def __contains__(self, queue: str) -> bool:
        return queue in self._tags

    def __len__(self) -> int:
        return len(self._tags)

    def apply(self, event: ConsumerEvent) -> frozenset[str]:
        """Follow an event, and give the queues that have consumers since, or have none any more."""
        if event.consumer is None:
            return self._remove(self._carried.get(event.carrier, ()))
        if not event.created:
            return self._remove((event.consumer,))
        new = event.consumer.queue not in self._tags
        self._add(event.consumer, event.carrier)
        return frozenset({event.consumer.queue} if new else ())

    def correct(self, found: Consumers, gone: frozenset[str]) -> frozenset[str]:
        """Add the queues that only ``found`` has, remove those that are ``gone``, and give those that changed."""
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
