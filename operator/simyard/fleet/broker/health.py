# SPDX-License-Identifier: Apache-2.0
"""Watches the nodes of the broker, and whether the broker accepts messages."""

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
ALARMS = Gauge(
    "simyard_broker_alarms", "Nodes that lack this resource; the broker then accepts no messages.", ["resource"]
)
DEPTH = Gauge("simyard_broker_queue_messages", "Messages in a queue of the platform; NaN while unknown.", ["queue"])
_QUEUES = (OPERATOR_QUEUE, OVERFLOW_QUEUE, UPDATES_QUEUE, DEAD_QUEUE, REFUSED_QUEUE)
_RESOURCES = ("memory", "disk space")


class BrokerHealth:
    """Component that reads the state of the broker's nodes every few seconds.

    Attributes:
        alarm: text that names the nodes which lack memory or disk space. It is empty while the broker accepts messages,
            and before the first reading.
    """

    def __init__(
        self,
        admin: BrokerAdmin,
        *,
        alarm_changed: Callable[[], None],
        nodes_changed: Callable[[], None],
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self.alarm = ""
        self._look_seconds = look_seconds
        self._admin = admin
        self._alarm_changed = alarm_changed
        self._nodes_changed = nodes_changed
        self._running: frozenset[str] | None = None

    async def run(self) -> NoReturn:
        """Read the state of the nodes until cancelled."""
        while True:
            try:
                self._apply_nodes(await self._admin.list_nodes())
                for name in _QUEUES:
                    queue = await self._admin.get_queue(name)
                    DEPTH.labels(name).set(math.nan if queue is None or queue.messages is None else queue.messages)
            except MessagingError as error:
                log.debug("the nodes of the broker cannot be listed: %s", error)
            await asyncio.sleep(self._look_seconds)

    def _apply_nodes(self, nodes: Mapping[str, NodeInfo]) -> None:
        running = frozenset(name for name, node in nodes.items() if node.running)
        NODES.labels("running").set(len(running))
        NODES.labels("down").set(len(nodes) - len(running))
        NODES.labels("partitioned").set(sum(node.partitioned for node in nodes.values()))
        for resource in _RESOURCES:
            ALARMS.labels(resource).set(sum(resource in node.short_of for node in nodes.values()))
        if running != self._running:
            if self._running is not None:
                log.warning("the running nodes of the broker are now: %s", ", ".join(sorted(running)))
                self._nodes_changed()
            self._running = running
        short = [f"{name} is short of {' and '.join(node.short_of)}" for name, node in nodes.items() if node.short_of]
        if (alarm := "; ".join(sorted(short))) != self.alarm:
            log.warning("alarms of the broker: %s", alarm or "none any more")
            self.alarm = alarm
            self._alarm_changed()
