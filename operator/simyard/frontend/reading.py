# SPDX-License-Identifier: Apache-2.0
"""Handles GET and HEAD."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from simyard.frontend.backend import Backend, Verb
from simyard.frontend.changes.preconditions import is_known
from simyard.frontend.changes.sent import read_draft
from simyard.frontend.entities.renderings import SLICE, BoundedCache, Listing, Renderings
from simyard.frontend.entities.targets import DISCOVERY_PATH, Collection, parse_location
from simyard.frontend.exchange import Identity, OcciRequest, OcciResponse
from simyard.frontend.metrics import REFRESHES
from simyard.occi import filters, pages
from simyard.occi.errors import OcciError, quote_input
from simyard.occi.filters import Filter
from simyard.occi.model import ENTITY, LINK, RESOURCE, Draft, Entity, Kind, Model
from simyard.occi.negotiation import Rendering, choose_rendering
from simyard.occi.rendering import Rendered

INSTANCE_RENDERINGS = (Rendering.TEXT_PLAIN, Rendering.JSON, Rendering.TEXT_OCCI)
REFRESH_SECONDS = 1.0
FIND_SECONDS = 10.0
MAX_HEADER_BYTES = 64 * 1024
MAX_KEPT_LOCATIONS_BYTES = 1024 * 1024

_FILTERS = frozenset({"category", "x-occi-attribute", "x_occi_attribute"})
_FLAGS = {"": True, "true": True, "1": True, "false": False, "0": False}
_EVERYTHING = Filter()
_ABSTRACT = frozenset({ENTITY, RESOURCE, LINK})


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a collection that a user may see.

    Attributes:
        all: the paths of the whole collection, from the backend.
        kinds: the locations of the members' kinds.
        seen: the locations of these kinds that the user may list.
    """

    all: tuple[str, ...]
    kinds: frozenset[str]
    seen: frozenset[str]

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the members that the user may see."""
        if self.seen == self.kinds:
            return self.all
        return tuple(path for path in self.all if parse_location(path) in self.seen)


class Reader:
    """Handlers of requests that change nothing."""

    def __init__(self, backend: Backend, renderings: Renderings, find_seconds: float = FIND_SECONDS) -> None:
        self._backend = backend
        self._renderings = renderings
        self._find_seconds = find_seconds
        self._kinds: BoundedCache[frozenset[str]] = BoundedCache("kinds", MAX_KEPT_LOCATIONS_BYTES, len)

    async def read_model(self, request: OcciRequest) -> OcciResponse:
        """Answer GET of the query interface: return all categories, or the categories that pass the filter."""
        rendering = choose_instance_rendering(request)
        await self._backend.may(request.identity, Verb.LIST, DISCOVERY_PATH)
        model = self._backend.get_model()
        draft = _read_filter(request, model)
        categories = None if draft is None else filters.select(model.ordered, draft)
        return _answer_known(request, self._renderings.render_model(categories, rendering, model))

    async def read_entity(self, request: OcciRequest, path: str) -> OcciResponse:
        """Answer GET of one entity, with the age of its oldest value."""
        rendering = choose_instance_rendering(request)
        fresh = wants_fresh(request)
        await self._backend.may(request.identity, Verb.GET, path)
        if fresh:
            await self._refresh((await self.find_entity(path),))
        elif self._backend.is_due(path):
            await self._backend.pull(path, REFRESH_SECONDS)
        model = self._backend.get_model()
        shown = self._renderings.get_cached_entity(path, rendering, request.base, model)
        if shown is None:
            shown = self._renderings.render_entity(await self.find_entity(path), rendering, request.base, model)
        return _answer_known(request, shown.rendered, (("Age", str(self._renderings.measure_age_seconds(shown))),))

    async def read_collection(self, request: OcciRequest, target: Collection) -> OcciResponse:
        """Answer GET of a collection: locations, or with ``?full=true`` (the default in JSON) its members in full."""
        rendering = choose_rendering(request.get_header("accept"))
        full = read_flag(request.query, "full", rendering is Rendering.JSON)
        if full and rendering not in (Rendering.TEXT_PLAIN, Rendering.JSON):
            raise OcciError(406, f"?full: {rendering} lists locations only; accept text/plain or application/occi+json")
        fresh = full and wants_fresh(request)
        page = pages.read_page(request.query)
        model = self._backend.get_model()
        draft = _read_filter(request, model)
        wanted = _build_filter(draft, target, model)
        members = await self.list_members(request.identity, target)
        if fresh:
            chosen = page.select(await self._matching(members, wanted, model))
            await self._refresh(tuple(self._backend.list_entities(chosen)))
        # A listing of locations stays valid while its members are the same, because it shows no values.
        token = None if draft is not None else (self._backend.version, model.version) if full else members.all
        listing = Listing(target.location, members.seen, page, rendering, full, request.base)
        rendered = self._renderings.get_cached_collection(listing, token) if token is not None else None
        if rendered is None:
            paths = page.select(await self._matching(members, wanted, model))
            rendered = await self._renderings.render_collection(listing, token, paths, model)
        if sum(len(value) for _, value in rendered.headers) > MAX_HEADER_BYTES:
            raise OcciError(413, "the headers cannot contain all locations: ask for fewer with ?page=1&number=100")
        return respond(rendered)

    async def find_entity(self, path: str) -> Entity:
        """Return the entity at a path.

        Raises:
            OcciError: 404, the entity does not exist; 503, the Kubernetes API does not answer now.
        """
        entity = self._backend.get_entity(path)
        if entity is None:
            try:
                async with asyncio.timeout(self._find_seconds):
                    entity = await self._backend.find(path)
            except TimeoutError:
                message = f"the Kubernetes API did not answer within {self._find_seconds:.0f} s"
                effect = f"it is unknown if {quote_input(path)} exists; nothing was done; try again"
                raise OcciError(503, f"{message}: {effect}") from None
        if entity is None:
            raise make_not_found_error(path)
        return entity

    async def _refresh(self, entities: Sequence[Entity]) -> None:
        """Ask the adapters for fresh values. If an adapter does not answer in time, its last values remain."""
        with REFRESHES.time(), suppress(TimeoutError):
            async with asyncio.timeout(REFRESH_SECONDS + 0.5):
                await self._backend.refresh(entities, REFRESH_SECONDS)

    async def select_paths(self, request: OcciRequest, target: Collection, draft: Draft) -> Sequence[str]:
        """Return the paths on the requested page of the members that the user may see and that pass the filter."""
        model = self._backend.get_model()
        page = pages.read_page(request.query)
        members = await self.list_members(request.identity, target)
        return page.select(await self._matching(members, _build_filter(draft, target, model), model))

    async def list_members(self, identity: Identity, target: Collection) -> Members:
        """Return the members of a collection with the kinds that the user may list.

        Raises:
            OcciError: 403, the user may not list the kind.
        """
        category, location = target.category, target.location
        if isinstance(category, Kind) and category.id not in _ABSTRACT:
            await self._backend.may(identity, Verb.LIST, location)
            kinds = frozenset({location})
            return Members(self._backend.list_paths(location), kinds, kinds)
        await self._backend.may(identity, Verb.LIST, DISCOVERY_PATH)
        paths = self._backend.list_paths("/" if isinstance(category, Kind) else location)
        found = self._kinds.find(location, paths)
        kinds = found if found is not None else self._kinds.put(location, paths, frozenset(map(parse_location, paths)))
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
        """Return the paths of the members that pass the filter.

        If the location of a member already decides, the method does not read the member. It yields to the event loop
        between members.
        """
        paths = members.paths
        if not wanted:
            return paths
        decided = {location: _decide_location(location, wanted, model) for location in members.kinds}
        found: list[str] = []
        for number, path in enumerate(paths, 1):
            is_wanted = decided[parse_location(path)]
            if is_wanted is None:
                is_wanted = any(filters.matches(entity, wanted) for entity in self._backend.list_entities((path,)))
                if number % SLICE == 0:
                    await asyncio.sleep(0)
            if is_wanted:
                found.append(path)
        return found


def _build_filter(draft: Draft | None, target: Collection, model: Model) -> Filter:
    wanted = _EVERYTHING if draft is None else filters.make_filter(draft, model)
    category = target.category
    if isinstance(category, Kind) and category.id in _ABSTRACT and category.id != ENTITY:
        kinds = frozenset(kind.id for kind in model.kinds if category.id in model.list_lineage(kind.id))
        return dataclasses.replace(wanted, kinds=kinds if wanted.kinds is None else kinds & wanted.kinds)
    return wanted


def _decide_location(location: str, wanted: Filter, model: Model) -> bool | None:
    """Return true if all members below a location pass the filter, false if none passes, None if some can pass.

    Links that clients made are below the location of their abstract kind, not of their own kind.
    """
    kind = model.find_by_location(location)
    if not isinstance(kind, Kind) or kind.id in _ABSTRACT:
        return None
    if wanted.kinds is not None and kind.id not in wanted.kinds:
        return False
    return None if wanted.mixins or wanted.actions or wanted.attributes else True


def make_not_found_error(path: str) -> OcciError:
    """Return the error for a missing entity: 404, also if it was deleted, because clients do not handle 410."""
    return OcciError(404, f"there is no entity at {quote_input(path)}")


def respond(rendered: Rendered, headers: tuple[tuple[str, str], ...] = (), status: int = 200) -> OcciResponse:
    """Return a rendering as a response."""
    tag = (("ETag", rendered.tag),) if rendered.tag else ()
    return OcciResponse(status, rendered.body, rendered.content_type, rendered.headers + headers + tag)


def _answer_known(request: OcciRequest, rendered: Rendered, headers: tuple[tuple[str, str], ...] = ()) -> OcciResponse:
    """Return the response to a GET: 304 if ``If-None-Match`` has the tag of the rendering."""
    if rendered.tag and is_known(request, rendered.tag):
        return OcciResponse(304, b"", rendered.content_type, (*headers, ("ETag", rendered.tag)))
    return respond(rendered, headers)


def choose_instance_rendering(request: OcciRequest) -> Rendering:
    """Return the rendering that a client accepts for an entity or the model; text/uri-list is for listings only.

    Raises:
        OcciError: 400, the client accepts only text/uri-list; 406, it accepts no rendering of this frontend.
    """
    accept = request.get_header("accept")
    try:
        return choose_rendering(accept, INSTANCE_RENDERINGS)
    except OcciError:
        choose_rendering(accept)
        raise OcciError(400, "Accept: text/uri-list is for listings only; ask for text/plain here") from None


def read_flag(query: Mapping[str, str], name: str, default: bool) -> bool:
    """Return a boolean from the query; ``?fresh`` without a value is true.

    Raises:
        OcciError: 400, the value is neither true nor false.
    """
    text = query.get(name)
    if text is None:
        return default
    if (value := _FLAGS.get(text.lower())) is None:
        raise OcciError(400, f"{name}={quote_input(text)}: send true or false")
    return value


def wants_fresh(request: OcciRequest) -> bool:
    """Return true if a client asks for fresh values: ``?fresh=true`` or ``Cache-Control: no-cache``."""
    control = request.get_header("cache-control")
    if control is not None and any(item.strip().lower() == "no-cache" for item in control.split(",")):
        return True
    return bool(request.query) and read_flag(request.query, "fresh", False)


def _read_filter(request: OcciRequest, model: Model) -> Draft | None:
    """Return the filter of a request, from its headers or body; None if there is no filter."""
    if not request.body and not any(name in _FILTERS for name, _ in request.headers):
        return None
    return read_draft(request, model)
