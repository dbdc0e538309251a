"""Links that clients made: OcciLinks as links, with what a foreign service adapter said of its attributes. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import orjson

from simyard.api.names import ANNOTATION_OCCI_ID, ANNOTATION_OCCI_PULLED
from simyard.api.occi import OcciLink
from simyard.frontend.computes import AMQPLINKS, QUEUE
from simyard.frontend.identifiers import is_id
from simyard.occi.grammar import ATTRIBUTE_NAME
from simyard.occi.model import Kind, Link, Model, Value
from simyard.occi.standard import AMQPLINK, COMPUTE

OTHER_LINKS = "/link/"


MAX_PULLED_BYTES = 64 * 1024
DUE_SECONDS = 1.0
"""A service adapter of Cloud4E tells nothing unasked: before a GET it is asked, at most so often."""
SILENT_SECONDS = 10.0
"""An adapter that has not answered is asked again after so long."""
MAX_ANSWERS = 10_000


@dataclass(frozen=True, slots=True)
class Pulled:
    """The attributes of a link as the adapter at its ``queue`` told them at a ``time`` (seconds since the epoch).

    It is kept in the OcciLink, so that every frontend shows the same.
    """

    queue: str
    time: float
    attributes: Mapping[str, Value]

    def annotation(self) -> str:
        """Return what is kept in the OcciLink."""
        return orjson.dumps({"queue": self.queue, "time": self.time, "attributes": self.attributes}).decode()


class Answers:
    """When this frontend asked service adapters last, and when they answered, by the uid of their link."""

    def __init__(self) -> None:
        self._asked: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def asked(self, uid: str, now: float) -> None:
        """Note that an adapter is asked."""
        self._asked[uid] = now, self._asked.get(uid, (0.0, 0.0))[1]
        self._asked.move_to_end(uid)
        while len(self._asked) > MAX_ANSWERS:
            self._asked.popitem(last=False)

    def answered(self, uid: str, now: float) -> None:
        """Note that an adapter has answered."""
        self._asked[uid] = self._asked.get(uid, (now, 0.0))[0], now

    def told_time(self, link: OcciLink) -> float | None:
        """Return when the values were true last that a link shows of its adapter; None if it shows none."""
        pulled = pulled_of(link)
        return max(pulled.time, self._asked.get(link.metadata.uid, (0.0, 0.0))[1]) if pulled is not None else None

    def is_due(self, uid: str, now: float) -> bool:
        """Return whether an adapter should be asked again."""
        asked, answered = self._asked.get(uid, (0.0, 0.0))
        return now - asked >= (DUE_SECONDS if answered >= asked else SILENT_SECONDS)


def pulled_of(link: OcciLink) -> Pulled | None:
    """Return what the adapter of a link told last; None if it told nothing, or another adapter did."""
    text = link.metadata.annotations.get(ANNOTATION_OCCI_PULLED, "")
    pulled = _read(text) if text else None
    return pulled if pulled is not None and pulled.queue == queue_of(link) else None


@lru_cache(maxsize=1024)
def _read(text: str) -> Pulled | None:
    try:
        read = orjson.loads(text)
        return Pulled(str(read["queue"]), float(read["time"]), dict(read["attributes"]))
    except (ValueError, TypeError, KeyError):
        return None


def link_id(link: OcciLink) -> str:
    """The OCCI id of a link."""
    chosen = link.metadata.annotations.get(ANNOTATION_OCCI_ID, "")
    return chosen if is_id(chosen) else link.metadata.uid


def link_path(link: OcciLink) -> str:
    """The path of a link."""
    return (AMQPLINKS if link.spec.kind == AMQPLINK else OTHER_LINKS) + link_id(link)


def queue_of(link: OcciLink) -> object:
    """The queue of its service adapter; None without."""
    return link.spec.attributes.get(QUEUE)


def told_by_mixins(
    link: OcciLink, mixins: tuple[str, ...], values: Mapping[str, Value], model: Model
) -> dict[str, Value]:
    """Return those of an adapter's values that count: what the link's mixins declare, and its kind does not."""
    declared, own = model.specs(mixins), model.specs((link.spec.kind,))
    return {name: value for name, value in values.items() if name in declared and name not in own}


def stored_link(link: OcciLink, mixins: tuple[str, ...], model: Model) -> Link:
    """An OcciLink as a link; of what its adapter told only what the link's mixins declare is shown.

    What the kind itself declares, the queue above all, is the link's own: whoever registered it said so.
    """
    spec = link.spec
    pulled = pulled_of(link)
    told = told_by_mixins(link, mixins, pulled.attributes, model) if pulled is not None else {}
    found = [mixin for name in mixins if (mixin := model.mixin(name)) is not None]
    return Link(
        spec.kind,
        link_id(link),
        link_path(link),
        spec.source,
        spec.target,
        mixins,
        {**{name: value for name, value in spec.attributes.items() if ATTRIBUTE_NAME.fullmatch(name)}, **told},
        tuple(dict.fromkeys(action for mixin in found for action in mixin.actions)),
        spec.title,
        tuple(spec.target_kind) or _kind_at(spec.target, model),
        COMPUTE,
    )


def _kind_at(target: str, model: Model) -> tuple[str, ...]:
    """The kind of an entity of ours, which a path as a target is."""
    kind = model.at(target[: target.rfind("/") + 1]) if target.startswith("/") else None
    return (kind.id,) if isinstance(kind, Kind) else ()
