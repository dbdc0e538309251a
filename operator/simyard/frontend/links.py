"""Links that clients made: OcciLinks as links, with what a foreign service adapter said of its attributes. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from simyard.api.names import ANNOTATION_OCCI_ID
from simyard.api.occi import OcciLink
from simyard.frontend.computes import AMQPLINKS, QUEUE
from simyard.frontend.identifiers import is_id
from simyard.occi.grammar import ATTRIBUTE_NAME
from simyard.occi.model import Kind, Link, Model, Value
from simyard.occi.standard import AMQPLINK, COMPUTE

OTHER_LINKS = "/link/"


class Pulled:
    """The attributes of links as foreign adapters told them last, by path. ``revision`` grows with every answer."""

    def __init__(self) -> None:
        self.revision = 0
        self._known: dict[str, tuple[float, Mapping[str, Value]]] = {}

    def record(self, path: str, attributes: Mapping[str, Value], time: float) -> None:
        """An adapter has answered, at ``time`` (seconds since the epoch)."""
        self._known[path] = time, attributes
        self.revision += 1

    def forget(self, path: str) -> None:
        """The link is gone, or is another adapter's now."""
        if self._known.pop(path, None) is not None:
            self.revision += 1

    def of(self, path: str) -> Mapping[str, Value]:
        """What is known of a link."""
        return self._known[path][1] if path in self._known else {}

    def time(self, path: str) -> float | None:
        """When its adapter answered last; None if it never did."""
        return self._known[path][0] if path in self._known else None


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


def stored_link(link: OcciLink, mixins: tuple[str, ...], pulled: Mapping[str, Value], model: Model) -> Link:
    """An OcciLink as a link; of what its adapter told only what the link's mixins declare is shown.

    What the kind itself declares, the queue above all, is the link's own: whoever registered it said so.
    """
    spec = link.spec
    declared, own = model.specs(mixins), model.specs((spec.kind,))
    told = {name: value for name, value in pulled.items() if name in declared and name not in own}
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
