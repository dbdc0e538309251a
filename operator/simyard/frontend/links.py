"""Links that clients made: OcciLinks as links, with what a foreign service adapter said of its attributes. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from simyard.api.names import ANNOTATION_OCCI_ID
from simyard.api.occi import OcciLink
from simyard.frontend.computes import AMQPLINKS
from simyard.frontend.identifiers import is_id
from simyard.occi.model import Link, Model, Value
from simyard.occi.standard import AMQPLINK

OTHER_LINKS = "/link/"


class Pulled:
    """The attributes of links as foreign adapters told them last, by path. ``revision`` grows with every answer."""

    def __init__(self) -> None:
        self.revision = 0
        self._known: dict[str, Mapping[str, Value]] = {}

    def record(self, path: str, attributes: Mapping[str, Value]) -> None:
        """An adapter has answered."""
        self._known[path] = attributes
        self.revision += 1

    def forget(self, path: str) -> None:
        """The link is gone, or says something else now."""
        if self._known.pop(path, None) is not None:
            self.revision += 1

    def of(self, path: str) -> Mapping[str, Value]:
        """What is known of a link."""
        return self._known.get(path, {})


def link_id(link: OcciLink) -> str:
    """The OCCI id of a link."""
    chosen = link.metadata.annotations.get(ANNOTATION_OCCI_ID, "")
    return chosen if is_id(chosen) else link.metadata.uid


def link_path(link: OcciLink) -> str:
    """The path of a link."""
    return (AMQPLINKS if link.spec.kind == AMQPLINK else OTHER_LINKS) + link_id(link)


def stored_link(link: OcciLink, mixins: tuple[str, ...], pulled: Mapping[str, Value], model: Model) -> Link:
    """An OcciLink as a link; of what its adapter told only what the link's mixins declare is shown."""
    spec = link.spec
    specs = model.specs((*mixins, spec.kind))
    told = {name: value for name, value in pulled.items() if name in specs}
    found = [mixin for name in mixins if (mixin := model.mixin(name)) is not None]
    return Link(
        spec.kind,
        link_id(link),
        link_path(link),
        spec.source,
        spec.target,
        mixins,
        {**spec.attributes, **told},
        tuple(dict.fromkeys(action for mixin in found for action in mixin.actions)),
        spec.title,
        tuple(spec.target_kind),
    )
