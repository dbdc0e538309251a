# SPDX-License-Identifier: Apache-2.0
"""Converts OcciLinks, the links that clients created, with the values from foreign service adapters. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import orjson

from simyard.api.names import ANNOTATION_OCCI_ID, ANNOTATION_OCCI_PULLED
from simyard.api.occi import OcciLink
from simyard.frontend.entities.computes import AMQPLINKS, QUEUE
from simyard.frontend.entities.identifiers import is_id
from simyard.occi.grammar import ATTRIBUTE_NAME
from simyard.occi.model import Kind, Link, Model, Value
from simyard.occi.standard import AMQPLINK, COMPUTE

OTHER_LINKS = "/link/"


MAX_PULLED_BYTES = 64 * 1024
DUE_SECONDS = 1.0
"""Minimum time between two requests to a service adapter of Cloud4E, which reports no values itself."""
SILENT_SECONDS = 10.0
"""Minimum time between two requests to an adapter that did not answer the last request."""
MAX_ANSWERS = 10_000


@dataclass(frozen=True, slots=True)
class Pulled:
    """Attributes of a link as its adapter reported them: ``queue`` is the adapter's queue, ``time`` the report's time.

    The OcciLink keeps them, so that every frontend shows the same values.
    """

    queue: str
    time: float
    attributes: Mapping[str, Value]

    def build_annotation(self) -> str:
        """Return the annotation in which the OcciLink keeps the values."""
        return orjson.dumps({"queue": self.queue, "time": self.time, "attributes": self.attributes}).decode()


class AdapterPolls:
    """The times of the last request to each service adapter, and of its last answer, by uid of the link.

    ``answers`` is the number of answers so far.
    """

    def __init__(self) -> None:
        self.answers = 0
        self._asked: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def note_question(self, uid: str, now: float) -> None:
        """Record that the frontend sends a request to an adapter."""
        self._asked[uid] = now, self._asked.get(uid, (0.0, 0.0))[1]
        self._asked.move_to_end(uid)
        while len(self._asked) > MAX_ANSWERS:
            self._asked.popitem(last=False)

    def note_answer(self, uid: str, now: float) -> None:
        """Record that an adapter has answered."""
        self.answers += 1
        self._asked[uid] = self._asked.get(uid, (now, 0.0))[0], now

    def get_reported_time(self, link: OcciLink) -> float | None:
        """Return the time at which the adapter last reported the values of a link; None if the link has no values."""
        pulled = read_pulled(link)
        return max(pulled.time, self._asked.get(link.metadata.uid, (0.0, 0.0))[1]) if pulled is not None else None

    def is_due(self, uid: str, now: float) -> bool:
        """Return true if the next request to an adapter is due."""
        asked, answered = self._asked.get(uid, (0.0, 0.0))
        return now - asked >= (DUE_SECONDS if answered >= asked else SILENT_SECONDS)


def read_pulled(link: OcciLink) -> Pulled | None:
    """Return the last values from the adapter of a link; None if the adapter in its queue has reported no values."""
    text = link.metadata.annotations.get(ANNOTATION_OCCI_PULLED, "")
    pulled = _read(text) if text else None
    return pulled if pulled is not None and pulled.queue == get_queue(link) else None


@lru_cache(maxsize=1024)
def _read(text: str) -> Pulled | None:
    try:
        read = orjson.loads(text)
        return Pulled(str(read["queue"]), float(read["time"]), dict(read["attributes"]))
    except (ValueError, TypeError, KeyError):
        return None


def link_id(link: OcciLink) -> str:
    """Return the OCCI id of a link."""
    chosen = link.metadata.annotations.get(ANNOTATION_OCCI_ID, "")
    return chosen if is_id(chosen) else link.metadata.uid


def link_path(link: OcciLink) -> str:
    """Return the path of a link."""
    return (AMQPLINKS if link.spec.kind == AMQPLINK else OTHER_LINKS) + link_id(link)


def get_queue(link: OcciLink) -> object:
    """Return the queue of a link's service adapter; None if the link has no adapter."""
    return link.spec.attributes.get(QUEUE)


def select_mixin_values(
    link: OcciLink, mixins: tuple[str, ...], values: Mapping[str, Value], model: Model
) -> dict[str, Value]:
    """Return the values of an adapter that the link's mixins declare and its kind does not declare."""
    declared, own = model.collect_specs(mixins), model.collect_specs((link.spec.kind,))
    return {name: value for name, value in values.items() if name in declared and name not in own}


def build_stored_link(link: OcciLink, mixins: tuple[str, ...], model: Model) -> Link:
    """Return an OcciLink as a link, with the values of its adapter that the link's mixins declare.

    The attributes that the kind declares, such as the queue, are those that the client sent when it created the link.
    """
    spec = link.spec
    pulled = read_pulled(link)
    reported = select_mixin_values(link, mixins, pulled.attributes, model) if pulled is not None else {}
    found = [mixin for name in mixins if (mixin := model.find_mixin(name)) is not None]
    return Link(
        spec.kind,
        link_id(link),
        link_path(link),
        spec.source,
        spec.target,
        mixins,
        {**{name: value for name, value in spec.attributes.items() if ATTRIBUTE_NAME.fullmatch(name)}, **reported},
        tuple(dict.fromkeys(action for mixin in found for action in mixin.actions)),
        spec.title,
        tuple(spec.target_kind) or _kind_at(spec.target, model),
        COMPUTE,
    )


def _kind_at(target: str, model: Model) -> tuple[str, ...]:
    """Return the id of the kind of the target of a link, in a tuple; () if the target is not an entity here."""
    kind = model.find_by_location(target[: target.rfind("/") + 1]) if target.startswith("/") else None
    return (kind.id,) if isinstance(kind, Kind) else ()
