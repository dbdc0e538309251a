"""GET: the model, collections and entities, as far as the asker may see them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from simyard.frontend.backend import Backend, Verb
from simyard.frontend.exchange import Identity, OcciRequest, OcciResponse
from simyard.frontend.metrics import REFRESHES
from simyard.frontend.preconditions import is_known
from simyard.frontend.renderings import SLICE, Kept, Listing, Renderings
from simyard.frontend.sent import draft_of
from simyard.frontend.targets import DISCOVERY_PATH, Collection, location_of
from simyard.occi import filters, pages
from simyard.occi.errors import OcciError, shown
from simyard.occi.filters import Filter
from simyard.occi.model import ENTITY, LINK, RESOURCE, Draft, Entity, Kind, Model
from simyard.occi.negotiation import Rendering, choose
from simyard.occi.rendering import Rendered

INSTANCE_RENDERINGS = (Rendering.TEXT_PLAIN, Rendering.JSON, Rendering.TEXT_OCCI)
REFRESH_SECONDS = 1.0
FIND_SECONDS = 10.0
MOST_HEADER_BYTES = 64 * 1024
MOST_KEPT_LOCATIONS_BYTES = 1024 * 1024

_FILTERS = frozenset({"category", "x-occi-attribute", "x_occi_attribute"})
_FLAGS = {"": True, "true": True, "1": True, "false": False, "0": False}
_EVERYTHING = Filter()
_ABSTRACT = frozenset({ENTITY, RESOURCE, LINK})


@dataclass(frozen=True, slots=True)
class Members:
    """Those of a collection that somebody may see.

    ``all`` are the paths of the whole collection, as the backend gave them; ``kinds`` the locations of their kinds, and
    ``seen`` those of them that the asker may list.
    """

    all: tuple[str, ...]
    kinds: frozenset[str]
    seen: frozenset[str]

    @property
    def paths(self) -> tuple[str, ...]:
        """What the asker may see."""
        if self.seen == self.kinds:
            return self.all
        return tuple(path for path in self.all if location_of(path) in self.seen)


class Reader:
    """Answers what changes nothing."""

    def __init__(self, backend: Backend, renderings: Renderings) -> None:
        self._backend = backend
        self._renderings = renderings
        self._kinds: Kept[frozenset[str]] = Kept("kinds", MOST_KEPT_LOCATIONS_BYTES, len)

    async def model(self, request: OcciRequest) -> OcciResponse:
        """GET of the query interface: all categories, or those that are asked for."""
        rendering = instance_rendering(request)
        await self._backend.may(request.identity, Verb.LIST, DISCOVERY_PATH)
        model = self._backend.model()
        draft = _asked_for(request, model)
        categories = None if draft is None else filters.select(model.ordered, draft)
        return _answer_known(request, self._renderings.model(categories, rendering, model))

    async def entity(self, request: OcciRequest, path: str) -> OcciResponse:
        """GET of one entity, with the age of its oldest value."""
        rendering = instance_rendering(request)
        fresh = wants_fresh(request)
        await self._backend.may(request.identity, Verb.GET, path)
        if fresh:
            await self._refresh((await self.found(path),))
        elif self._backend.is_due(path):
            await self._backend.pull(path, REFRESH_SECONDS)
        model = self._backend.model()
        shown = self._renderings.kept_entity(path, rendering, request.base, model)
        if shown is None:
            shown = self._renderings.entity(await self.found(path), rendering, request.base, model)
        return _answer_known(request, shown.rendered, (("Age", str(self._renderings.age_seconds(shown))),))

    async def collection(self, request: OcciRequest, target: Collection) -> OcciResponse:
        """GET of a collection: locations, or with ``?full=true`` (the default in JSON) its members in full."""
        rendering = choose(request.header("accept"))
        full = flag(request.query, "full", rendering is Rendering.JSON)
        if full and rendering not in (Rendering.TEXT_PLAIN, Rendering.JSON):
            raise OcciError(406, f"?full: {rendering} lists locations only; accept text/plain or application/occi+json")
        fresh = full and wants_fresh(request)
        page = pages.page(request.query)
        model = self._backend.model()
        asked = _asked_for(request, model)
        wanted = _filter(asked, target, model)
        members = await self.members(request.identity, target)
        if fresh:
            chosen = page.of(await self._matching(members, wanted, model))
            await self._refresh(tuple(self._backend.entities(chosen)))
        # A listing of locations stays true while the same members are there; values do not matter to it.
        token = None if asked is not None else (self._backend.version, model.version) if full else members.all
        listing = Listing(target.location, members.seen, page, rendering, full, request.base)
        rendered = self._renderings.kept_collection(listing, token) if token is not None else None
        if rendered is None:
            paths = page.of(await self._matching(members, wanted, model))
            rendered = await self._renderings.collection(listing, token, paths, model)
        if sum(len(value) for _, value in rendered.headers) > MOST_HEADER_BYTES:
            raise OcciError(413, "so many locations do not fit into headers: ask for fewer by ?page=1&number=100")
        return answer(rendered)

    async def found(self, path: str) -> Entity:
        """The entity at a path.

        Raises:
            OcciError: 404, there is none; 503, that cannot be found out now.
        """
        entity = self._backend.entity(path)
        if entity is None:
            try:
                async with asyncio.timeout(FIND_SECONDS):
                    entity = await self._backend.find(path)
            except TimeoutError:
                message = f"the Kubernetes API did not say within {FIND_SECONDS:.0f} s whether there is {shown(path)}"
                raise OcciError(503, f"{message}; nothing was done") from None
        if entity is None:
            raise no_entity(path)
        return entity

    async def _refresh(self, entities: Sequence[Entity]) -> None:
        """What did not answer by then is shown as it was last known."""
        with REFRESHES.time(), suppress(TimeoutError):
            async with asyncio.timeout(REFRESH_SECONDS + 0.5):
                await self._backend.refresh(entities, REFRESH_SECONDS)

    async def selected(self, request: OcciRequest, target: Collection, draft: Draft) -> Sequence[str]:
        """The paths of the members that the asker may see, pass the filter of a request, and stand on its page."""
        model = self._backend.model()
        page = pages.page(request.query)
        members = await self.members(request.identity, target)
        return page.of(await self._matching(members, _filter(draft, target, model), model))

    async def members(self, identity: Identity, target: Collection) -> Members:
        """The members of a collection and which of them the asker may see.

        Raises:
            OcciError: 403, the asker may see nothing of the kind.
        """
        category, location = target.category, target.location
        if isinstance(category, Kind) and category.id not in _ABSTRACT:
            await self._backend.may(identity, Verb.LIST, location)
            kinds = frozenset({location})
            return Members(self._backend.paths(location), kinds, kinds)
        await self._backend.may(identity, Verb.LIST, DISCOVERY_PATH)
        paths = self._backend.paths("/" if isinstance(category, Kind) else location)
        found = self._kinds.find(location, paths)
        kinds = found if found is not None else self._kinds.put(location, paths, frozenset(map(location_of, paths)))
        seen = frozenset([kind for kind in kinds if await self._may_list(identity, kind)])
        return Members(paths, kinds, seen)

    async def _may_list(self, identity: Identity, location: str) -> bool:
        try:
            await self._backend.may(identity, Verb.LIST, location)
        except OcciError as error:
            if error.status != 403:
                raise
            return False
        return True

    async def _matching(self, members: Members, wanted: Filter, model: Model) -> Sequence[str]:
        """The paths of those that are asked for, by their locations where these tell; others get turns in between."""
        paths = members.paths
        if not wanted:
            return paths
        decided = {location: _decided(location, wanted, model) for location in members.kinds}
        found: list[str] = []
        for number, path in enumerate(paths, 1):
            is_wanted = decided[location_of(path)]
            if is_wanted is None:
                is_wanted = any(filters.matches(entity, wanted) for entity in self._backend.entities((path,)))
                if number % SLICE == 0:
                    await asyncio.sleep(0)
            if is_wanted:
                found.append(path)
        return found


def _filter(asked: Draft | None, target: Collection, model: Model) -> Filter:
    wanted = _EVERYTHING if asked is None else filters.filter_of(asked, model)
    category = target.category
    if isinstance(category, Kind) and category.id in _ABSTRACT and category.id != ENTITY:
        kinds = frozenset(kind.id for kind in model.kinds if category.id in model.lineage(kind.id))
        return dataclasses.replace(wanted, kinds=kinds if wanted.kinds is None else kinds & wanted.kinds)
    return wanted


def _decided(location: str, wanted: Filter, model: Model) -> bool | None:
    """Whether all below a location are asked for; None: that depends on each.

    Links that clients made stand below the location of their abstract kind, whichever kind they are of.
    """
    kind = model.at(location)
    if not isinstance(kind, Kind) or kind.id in _ABSTRACT:
        return None
    if wanted.kinds is not None and kind.id not in wanted.kinds:
        return False
    return None if wanted.mixins or wanted.actions or wanted.attributes else True


def no_entity(path: str) -> OcciError:
    """There is no such entity (any more): 404 rather than 410, for clients that know no other."""
    return OcciError(404, f"there is no entity at {shown(path)}")


def answer(rendered: Rendered, headers: tuple[tuple[str, str], ...] = (), status: int = 200) -> OcciResponse:
    """A rendering as a response."""
    tag = (("ETag", rendered.tag),) if rendered.tag else ()
    return OcciResponse(status, rendered.body, rendered.content_type, rendered.headers + headers + tag)


def _answer_known(request: OcciRequest, rendered: Rendered, headers: tuple[tuple[str, str], ...] = ()) -> OcciResponse:
    """Return the answer of a GET: 304 where the client has the rendering already."""
    if rendered.tag and is_known(request, rendered.tag):
        return OcciResponse(304, b"", rendered.content_type, (*headers, ("ETag", rendered.tag)))
    return answer(rendered, headers)


def instance_rendering(request: OcciRequest) -> Rendering:
    """How a client wants an entity or the model; text/uri-list carries listings only.

    Raises:
        OcciError: 400, nothing but text/uri-list is accepted; 406, nothing of ours.
    """
    accept = request.header("accept")
    try:
        return choose(accept, INSTANCE_RENDERINGS)
    except OcciError:
        choose(accept)
        raise OcciError(400, "Accept: text/uri-list is for listings only; ask for text/plain here") from None


def flag(query: Mapping[str, str], name: str, default: bool) -> bool:
    """A truth value in the query; ``?fresh`` alone is true.

    Raises:
        OcciError: 400, it is something else.
    """
    text = query.get(name)
    if text is None:
        return default
    if (value := _FLAGS.get(text.lower())) is None:
        raise OcciError(400, f"{name}={shown(text)}: true or false is expected")
    return value


def wants_fresh(request: OcciRequest) -> bool:
    """Whether the adapters are to be asked before the answer."""
    control = request.header("cache-control")
    if control is not None and any(item.strip().lower() == "no-cache" for item in control.split(",")):
        return True
    return bool(request.query) and flag(request.query, "fresh", False)


def _asked_for(request: OcciRequest, model: Model) -> Draft | None:
    """The filter of a request, in its headers or in a body; None if there is none."""
    if not request.body and not any(name in _FILTERS for name, _ in request.headers):
        return None
    return draft_of(request, model)
