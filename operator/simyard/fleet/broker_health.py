"""Which nodes of the broker run, and whether it takes messages."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from typing import NoReturn

from prometheus_client import Gauge

from simyard.messaging.admin import BrokerAdmin, NodeInfo
from simyard.messaging.errors import MessagingError
from simyard.messaging.topology import DEAD_QUEUE, OPERATOR_QUEUE, OVERFLOW_QUEUE, REFUSED_QUEUE, UPDATES_QUEUE

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
NODES = Gauge("simyard_broker_nodes", "Nodes of the broker's cluster: running, down, partitioned.", ["state"])
ALARMS = Gauge("simyard_broker_alarms", "Nodes that are short of it: then the broker takes no messages.", ["resource"])
DEPTH = Gauge(
    "simyard_broker_queue_messages", "Messages in a queue of the platform; NaN while it is unknown.", ["queue"]
)
_QUEUES = (OPERATOR_QUEUE, OVERFLOW_QUEUE, UPDATES_QUEUE, DEAD_QUEUE, REFUSED_QUEUE)
_RESOURCES = ("memory", "disk space")


class BrokerHealth:
    """Looks at the broker's nodes again and again.

    Attributes:
        alarm: which node is short of what; empty while the broker takes messages, and before the first look.
    """

    def __init__(
        self, admin: BrokerAdmin, *, alarm_changed: Callable[[], None], nodes_changed: Callable[[], None]
    ) -> None:
        self.alarm = ""
        self._admin = admin
        self._alarm_changed = alarm_changed
        self._nodes_changed = nodes_changed
        self._running: frozenset[str] | None = None

    async def run(self) -> NoReturn:
        """Look until cancelled."""
        while True:
            try:
                self._take(await self._admin.nodes())
                for name in _QUEUES:
                    queue = await self._admin.queue(name)
                    DEPTH.labels(name).set(math.nan if queue is None or queue.messages is None else queue.messages)
            except MessagingError as error:
                log.debug("the nodes of the broker are unknown: %s", error)
            await asyncio.sleep(LOOK_SECONDS)

    def _take(self, nodes: Mapping[str, NodeInfo]) -> None:
        running = frozenset(name for name, node in nodes.items() if node.running)
        NODES.labels("running").set(len(running))
        NODES.labels("down").set(len(nodes) - len(running))
        NODES.labels("partitioned").set(sum(node.partitioned for node in nodes.values()))
        for resource in _RESOURCES:
            ALARMS.labels(resource).set(sum(resource in node.short_of for node in nodes.values()))
        if running != self._running:
            if self._running is not None:
                log.warning("the nodes of the broker that run are now: %s", ", ".join(sorted(running)))
                self._nodes_changed()
            self._running = running
        short = [f"{name} is short of {' and '.join(node.short_of)}" for name, node in nodes.items() if node.short_of]
        if (alarm := "; ".join(sorted(short))) != self.alarm:
            log.warning("alarms of the broker: %s", alarm or "none any more")
            self.alarm = alarm
            self._alarm_changed()
