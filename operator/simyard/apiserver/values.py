"""The newest known values of the workers' attributes, and the answers made of them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from time import monotonic

from simyard.api.base import Json
from simyard.api.names import SUBRESOURCES_API_VERSION
from simyard.apiserver.discovery import ATTRIBUTE_VALUES
from simyard.apiserver.metrics import ATTRIBUTE_WORKERS
from simyard.apiserver.objects import CachedWorker, Target
from simyard.guest.values import ClaimedAttributes, merged
from simyard.messaging.metrics import VALUES_REFUSED
from simyard.messaging.refusals import Refusals
from simyard_adapter.declarations import Attribute, Interface
from simyard_adapter.declarations import Json as Value


@dataclass(frozen=True, slots=True)
class Observed:
    """A value, and when the platform received it (seconds since the epoch; a guest's clock may be wrong)."""

    value: Value
    time: float


class ValueStore:
    """What the workers said of themselves, by their uid."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, Observed]] = {}
        self._revisions: dict[str, int] = {}
        self._refusals = Refusals("attribute", VALUES_REFUSED, monotonic)
        self.revision = 0

    def revision_of(self, worker_uid: str) -> int:
        """Another one whenever something was recorded of the worker; ``revision``: of any."""
        return self._revisions.get(worker_uid, 0)

    def record(self, worker: CachedWorker, claimed: ClaimedAttributes, interface: Interface, time: float) -> None:
        """Take over the values that the interface declares, as far as they fit."""
        worker_uid = worker.metadata.uid
        refused = partial(self._refusals.note, f"{worker.metadata.namespace}/{worker.metadata.name}")
        values = claimed.checked(interface.attributes, refused)
        known = self._values.setdefault(worker_uid, {})
        before = {name: observed.value for name, observed in known.items()}
        after = merged(before, values, refused)
        known.update((name, Observed(after[name], time)) for name in values if after.get(name) is values[name])
        self.revision += 1
        self._revisions[worker_uid] = self.revision
        ATTRIBUTE_WORKERS.set(len(self._values))

    def forget(self, worker_uid: str) -> None:
        """The worker is gone."""
        self._values.pop(worker_uid, None)
        self._revisions.pop(worker_uid, None)
        ATTRIBUTE_WORKERS.set(len(self._values))

    def of(self, worker: CachedWorker) -> dict[str, Observed]:
        """The newest value of each attribute, from the worker's own messages or from its status."""
        values = {name: Observed(value, worker.attributes_time) for name, value in worker.attributes.items()}
        for name, observed in self._values.get(worker.metadata.uid, {}).items():
            if name not in values or values[name].time <= observed.time:
                values[name] = observed
        return values


def worker_values(
    worker: CachedWorker, observed: Mapping[str, Observed], declared: Sequence[Attribute], fresh: bool, now: float
) -> Json:
    """What is known of a worker; an attribute whose value is not known is left out.

    ``fresh``: the worker said so just now.
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


def attribute_values(target: Target, items: list[Json]) -> Json:
    """The AttributeValues of a target: ``values`` of a worker, ``items`` with the ``values`` of each worker otherwise.

    ``items`` are the :func:`worker_values` of its workers.
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
