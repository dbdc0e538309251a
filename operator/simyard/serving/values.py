# SPDX-License-Identifier: Apache-2.0
"""Stores the newest known values of the workers' attributes, and renders them as AttributeValues. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from time import monotonic

from simyard.api.base import Json
from simyard.api.names import ATTRIBUTE_VALUES, SUBRESOURCES_API_VERSION
from simyard.guest.values import ClaimedAttributes, merge_attributes
from simyard.messaging.metrics import VALUES_REFUSED
from simyard.messaging.refusals import Refusals
from simyard.serving.metrics import ATTRIBUTE_WORKERS
from simyard.serving.objects import CachedWorker, Target
from simyard_adapter.declarations import Attribute, Interface
from simyard_adapter.declarations import Json as Value


@dataclass(frozen=True, slots=True)
class Observed:
    """A value, and the time at which the platform received it.

    The time is in seconds since the epoch, by the clock of the platform, because a guest's clock may be wrong.
    """

    value: Value
    time: float


class ValueStore:
    """The attribute values that workers have reported, by the worker's uid."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, Observed]] = {}
        self._revisions: dict[str, int] = {}
        self._refusals = Refusals("attribute", VALUES_REFUSED, monotonic)
        self.revision = 0

    def get_revision(self, worker_uid: str) -> int:
        """Return a number that changes whenever values of this worker are recorded.

        The attribute ``revision`` changes whenever values of any worker are recorded.
        """
        return self._revisions.get(worker_uid, 0)

    def record(self, worker: CachedWorker, claimed: ClaimedAttributes, interface: Interface, time: float) -> None:
        """Record the values that match the interface, and count the other values as refused."""
        worker_uid = worker.metadata.uid
        refused = partial(self._refusals.note, f"{worker.metadata.namespace}/{worker.metadata.name}")
        values = claimed.check(interface.attributes, refused)
        known = self._values.setdefault(worker_uid, {})
        before = {name: observed.value for name, observed in known.items()}
        after = merge_attributes(before, values, refused)
        known.update((name, Observed(after[name], time)) for name in values if after.get(name) is values[name])
        self.revision += 1
        self._revisions[worker_uid] = self.revision
        ATTRIBUTE_WORKERS.set(len(self._values))

    def forget(self, worker_uid: str) -> None:
        """Remove the values of a worker that was deleted."""
        self._values.pop(worker_uid, None)
        self._revisions.pop(worker_uid, None)
        ATTRIBUTE_WORKERS.set(len(self._values))

    def get_values(self, worker: CachedWorker) -> dict[str, Observed]:
        """Return the newest value of each attribute, from the worker's own messages or from its status."""
        values = {name: Observed(value, worker.attributes_time) for name, value in worker.attributes.items()}
        for name, observed in self._values.get(worker.metadata.uid, {}).items():
            if name not in values or values[name].time <= observed.time:
                values[name] = observed
        return values


def render_worker_values(
    worker: CachedWorker, observed: Mapping[str, Observed], declared: Sequence[Attribute], fresh: bool, now: float
) -> Json:
    """Return the values of a worker as JSON, without attributes whose value is unknown.

    ``fresh`` is true if the worker reported the values for this request.
    """
    return {
        "metadata": {"name": worker.metadata.name, "namespace": worker.metadata.namespace},
        "ready": worker.state.good,
        "values": {
            attribute.name: _value(attribute, observed[attribute.name], fresh, now)
            for attribute in declared
            if attribute.name in observed
        },
    }


def render_attribute_values(target: Target, items: list[Json]) -> Json:
    """Return the AttributeValues of a target: with ``values`` for a worker, and otherwise with ``items``.

    ``items`` contains the result of :func:`render_worker_values` for each worker of the target.
    """
    kind = {"apiVersion": SUBRESOURCES_API_VERSION, "kind": ATTRIBUTE_VALUES}
    if isinstance(target, CachedWorker):
        return kind | items[0]
    metadata = {"name": target.metadata.name, "namespace": target.metadata.namespace}
    return kind | {"metadata": metadata, "items": items}


def _value(attribute: Attribute, observed: Observed, fresh: bool, now: float) -> Json:
    data: Json = {"value": observed.value, "type": attribute.type.value}
    if attribute.unit:
        data["unit"] = attribute.unit
    return data | {
        "observedTime": datetime.fromtimestamp(observed.time, UTC).isoformat(timespec="milliseconds"),
        "ageMilliseconds": max(0, round((now - observed.time) * 1000)),
        "fresh": fresh,
    }
