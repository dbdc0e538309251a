# SPDX-License-Identifier: Apache-2.0
"""Consumers, computed from the events of RabbitMQ 3.10 and 4.0.5."""

from __future__ import annotations

from simyard.messaging.consumers import Consumer, ConsumerEvent, Consumers

QUEUE, OTHER = "simyard.worker.one", "simyard.worker.two"
CHANNEL, CONNECTION = "<rabbit@localhost.1795374918.758.0>", "127.0.0.1:43194 -> 127.0.0.1:5672"


def created(queue: str = QUEUE, tag: str = "ctag1", channel: str = CHANNEL) -> ConsumerEvent:
    return ConsumerEvent.read("consumer.created", {"queue": queue, "consumer_tag": tag, "channel": channel})


def deleted(queue: str = QUEUE, tag: str = "ctag1", channel: str = CHANNEL) -> ConsumerEvent:
    return ConsumerEvent.read("consumer.deleted", {"queue": queue, "consumer_tag": tag, "channel": channel})


def channel_closed(pid: str = CHANNEL) -> ConsumerEvent:
    return ConsumerEvent.read("channel.closed", {"consumer_count": 1, "pid": pid, "user_who_performed_action": "guest"})


def connection_closed(name: str = CONNECTION) -> ConsumerEvent:
    return ConsumerEvent.read("connection.closed", {"name": name, "pid": "<rabbit@localhost.1795374918.749.0>"})


def test_a_consumer_that_is_deleted_is_gone() -> None:
    consumers = Consumers()
    assert consumers.apply_event(created()) == {QUEUE}
    assert consumers.apply_event(deleted()) == {QUEUE}
    assert QUEUE not in consumers


def test_a_channel_that_closes_takes_its_consumers_along_and_no_others() -> None:
    consumers = Consumers()
    consumers.apply_event(created())
    consumers.apply_event(created(OTHER, channel="<rabbit@localhost.1795374918.799.0>"))
    assert consumers.apply_event(channel_closed()) == {QUEUE}
    assert consumers.queues == {OTHER}


def test_a_connection_that_closes_takes_along_the_consumers_of_the_snapshot() -> None:
    consumers = Consumers({Consumer(QUEUE, "ctag1"): CONNECTION, Consumer(OTHER, "ctag1"): "127.0.0.1:1 -> x"})
    assert consumers.apply_event(channel_closed()) == frozenset(), "the connection of that channel is unknown"
    assert consumers.apply_event(connection_closed()) == {QUEUE}
    assert consumers.queues == {OTHER}


def test_a_queue_with_another_consumer_stays() -> None:
    consumers = Consumers({Consumer(QUEUE, "old"): CONNECTION})
    assert consumers.apply_event(created(tag="new")) == frozenset()
    assert consumers.apply_event(connection_closed()) == frozenset()
    assert QUEUE in consumers
    assert consumers.apply_event(channel_closed()) == {QUEUE}


def test_what_is_told_twice_counts_once() -> None:
    consumers = Consumers({Consumer(QUEUE, "ctag1"): CONNECTION})
    consumers.apply_event(created())
    assert consumers.apply_event(channel_closed()) == {QUEUE}
    for again in (deleted(), connection_closed(), channel_closed()):
        assert consumers.apply_event(again) == frozenset()
    assert len(consumers) == 0


def test_a_correction_adds_what_is_new_and_removes_what_is_gone() -> None:
    consumers = Consumers({Consumer(QUEUE, "ctag1"): CONNECTION})
    found = Consumers({Consumer(OTHER, "ctag2"): "another"})
    assert consumers.correct(found, frozenset()) == {OTHER}
    assert consumers.queues == {QUEUE, OTHER}
    assert consumers.correct(found, frozenset({QUEUE})) == {QUEUE}
    assert consumers.apply_event(connection_closed("another")) == {OTHER}
