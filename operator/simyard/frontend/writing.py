"""POST, PUT and DELETE: who may, what is asked for, and then one change.

Somebody who may not change entities is told so before any of them is looked up: whoever may nothing learns nothing of
them. What paths and categories there are is no secret to somebody with a token.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from simyard.frontend.backend import Backend, Verb
from simyard.frontend.exchange import OcciRequest, OcciResponse
from simyard.frontend.reading import Reader, answer, flag, instance_rendering
from simyard.frontend.renderings import Renderings
from simyard.frontend.targets import DISCOVERY_PATH, Collection, Instance, location_of
from simyard.occi.definitions import check_definitions, check_removals
from simyard.occi.errors import OcciError, shown
from simyard.occi.invocations import action_of_term, check_invocation
from simyard.occi.model import ID, LINK, Action, Draft, Entity, Kind, Mixin, Model, Value, ValueType, path_of
from simyard.occi.negotiation import Rendering, choose, content_type
from simyard.occi.parsing import parse
from simyard.occi.rendering import render_entity, render_locations
from simyard.occi.text_rendering import ATTRIBUTE, body_of, headers_of, value_text
from simyard.occi.validation import Checked, check_association, check_creation, check_update
from simyard.occi.values import json_of

log = logging.getLogger(__name__)

MOST_MADE = 100
"""Of entities in a batch, and of inline links in a request."""


class Writer:
    """Carries out what changes something."""

    def __init__(
        self, backend: Backend, reader: Reader, renderings: Renderings, endpoints: tuple[str, ...] = ()
    ) -> None:
        """``endpoints``: what URIs of ours may begin with, beside that of a request and its Host."""
        self._backend = backend
        self._endpoints = endpoints
        self._reader = reader
        self._renderings = renderings

    async def define(self, request: OcciRequest) -> OcciResponse:
        """POST of user mixins, with their actions, to the query interface."""
        rendering = instance_rendering(request)
        await self._backend.may(request.identity, Verb.CREATE, DISCOVERY_PATH)
        model = self._backend.model()
        await self._backend.define(request.identity, check_definitions(_draft(request, model), model))
        return done(rendering)

    async def undefine(self, request: OcciRequest) -> OcciResponse:
        """DELETE of user mixins."""
        rendering = instance_rendering(request)
        await self._backend.may(request.identity, Verb.DELETE, DISCOVERY_PATH)
        model = self._backend.model()
        await self._backend.undefine(request.identity, check_removals(_draft(request, model), model))
        return done(rendering)

    async def associate(self, request: OcciRequest, mixin: Mixin, *, replace: bool) -> OcciResponse:
        """POST or PUT of X-OCCI-Location to a mixin: more members, or only these."""
        rendering = choose(request.header("accept"))
        await self._backend.may(request.identity, Verb.UPDATE, mixin.location)
        model = self._backend.model()
        locations = _locations(_draft(request, model), mixin, model)
        if not locations and not replace:
            raise _no_locations(mixin)
        entities = await self._located(request, locations)
        for entity in entities:
            check_association(mixin, entity, model)
        paths = [entity.path for entity in entities]
        await self._backend.associate(request.identity, mixin, paths, replace=replace)
        return done(rendering)

    async def dissociate(self, request: OcciRequest, mixin: Mixin) -> OcciResponse:
        """DELETE of X-OCCI-Location from a mixin; without any, of all members."""
        rendering = choose(request.header("accept"))
        await self._backend.may(request.identity, Verb.UPDATE, mixin.location)
        model = self._backend.model()
        paths = [
            path_of(location, *self._bases(request)) for location in _locations(_draft(request, model), mixin, model)
        ]
        await self._backend.dissociate(request.identity, mixin, paths or self._backend.paths(mixin.location))
        return done(rendering)

    async def create(self, request: OcciRequest, target: Collection) -> OcciResponse:
        """POST to a kind, or to an unbound path: one entity, or a batch of which all or none is made."""
        rendering = choose(request.header("accept"))
        if isinstance(target.category, Kind):
            await self._backend.may(request.identity, Verb.CREATE, target.location)
        model = self._backend.model()
        drafts = _draft(request, model).each
        _check_number(len(drafts), sum(len(draft.links) for draft in drafts))
        wanted = []
        for place, draft in enumerate(drafts, 1):
            with _naming(place, len(drafts)):
                wanted.append(_creation(draft, model, self._bases(request), target))
        await self._may_create(request, wanted)
        created = await self._create_all(request, wanted, model)
        return _created(created, rendering, request.base)

    async def put(self, request: OcciRequest, path: str, kind: Kind) -> OcciResponse:
        """PUT of an entity: replace the one that is there (its links stay), or create one with that id."""
        rendering = instance_rendering(request)
        await self._backend.may(request.identity, Verb.UPDATE, path)
        model = self._backend.model()
        draft = _draft(request, model)
        if draft == Draft():
            raise OcciError(400, "PUT replaces an entity: send its Category or attributes; to keep what is there, POST")
        entity = self._backend.entity(path) or await self._backend.find(path)
        if entity is not None:
            return await self._update(request, entity, draft, rendering, replace=True)
        _check_number(1, len(draft.links))
        name = path[len(kind.location) :]
        draft = dataclasses.replace(draft, attributes={**draft.attributes, ID: name})
        checked = _creation(draft, model, self._bases(request), Collection(kind.location, kind))
        if not checked.id:
            raise OcciError(
                400, f"{shown(path)}: an id has at most 253 characters, of letters, digits and . _ ~ - only"
            )
        await self._may_create(request, [checked])
        try:
            created = await self._backend.create(request.identity, checked, key=request.key, exact=True)
        except OcciError as error:
            if error.status != 409 or (entity := await self._backend.find(path)) is None:
                raise
            return await self._update(request, entity, draft, rendering, replace=True)  # somebody else was faster
        return _created([created], rendering, request.base)

    async def update(self, request: OcciRequest, path: str) -> OcciResponse:
        """POST of an entity: what is sent is changed, the rest stays."""
        rendering = instance_rendering(request)
        await self._backend.may(request.identity, Verb.UPDATE, path)
        draft = _draft(request, self._backend.model())
        return await self._update(request, await self._reader.found(path), draft, rendering, replace=False)

    async def delete(self, request: OcciRequest, path: str) -> OcciResponse:
        """DELETE of an entity and its links."""
        rendering = choose(request.header("accept"))
        await self._backend.may(request.identity, Verb.DELETE, path)
        try:
            entity = await self._reader.found(path)
        except OcciError:
            if self._backend.was_deleted(path, request.key):
                return done(rendering)
            raise
        await self._backend.delete(request.identity, (entity,), key=request.key)
        return done(rendering)

    async def delete_all(self, request: OcciRequest, target: Collection) -> OcciResponse:
        """DELETE of all members of a kind, or below a path, that the asker may see and a filter lets through."""
        rendering = choose(request.header("accept"))
        if isinstance(target.category, Kind):
            await self._backend.may(request.identity, Verb.DELETE, target.location)
        selected = await self._reader.selected(request, target)
        entities = tuple(entity for entity in selected if not self._backend.stays(entity.path))
        if isinstance(target.category, Kind) and not entities:
            entities = selected  # the reason why none of them can go is a better answer than that nothing was done
        for location in sorted({location_of(entity.path) for entity in entities}):
            await self._backend.may(request.identity, Verb.DELETE, location)
        await self._backend.delete(request.identity, entities)
        return done(rendering)

    async def act(self, request: OcciRequest, target: Collection | Instance, term: str) -> OcciResponse:
        """POST of ``?action=TERM`` to an entity, or to all members of a collection."""
        rendering = choose(request.header("accept"))
        model = self._backend.model()
        draft = _draft(request, model)
        path = target.path if isinstance(target, Instance) else target.location
        is_ours = "wait" in request.query
        if draft.action or draft.definitions:
            if model.action(draft.action) is None:
                raise OcciError(400, f"Category: {shown(draft.action or term)} is no action that is known here")
            await self._backend.may(request.identity, Verb.ACT, path, draft.action)
            on = await self._on(request, target)
        else:  # the form of old clients of the Cloud4E binding, with everything in the query
            await self._backend.may(request.identity, Verb.GET if isinstance(target, Instance) else Verb.LIST, path)
            on = await self._on(request, target)
            found = action_of_term(term, on, model)
            is_ours = is_ours and all(spec.name != "wait" for spec in found.attributes)
            draft = _query_draft(draft, request, found)
            await self._backend.may(request.identity, Verb.ACT, path, draft.action)
        wait = flag(request.query, "wait", False) if is_ours else None
        action, attributes = check_invocation(draft, term, on, model)
        entities = on if isinstance(on, tuple) else (on,)
        for location in sorted({location_of(entity.path) for entity in entities} - {location_of(path)}):
            await self._backend.may(request.identity, Verb.ACT, location, action.id)
        result = await self._backend.act(
            request.identity, entities, action, attributes, wait=wait, key=request.key
        )  # fmt: skip
        return done(rendering) if result is None else _result(action, result, rendering)

    async def _on(self, request: OcciRequest, target: Collection | Instance) -> Entity | tuple[Entity, ...]:
        if isinstance(target, Instance):
            return await self._reader.found(target.path)
        members = await self._reader.members(request.identity, target)
        return tuple(self._backend.entities(members.paths))

    async def _update(
        self, request: OcciRequest, entity: Entity, draft: Draft, rendering: Rendering, *, replace: bool
    ) -> OcciResponse:
        model = self._backend.model()
        update = check_update(draft, entity, model, replace)
        links = tuple(_local(link, self._bases(request)) for link in update.links)
        _check_number(1, len(links))
        await self._may_create(request, links)
        changed = await self._backend.update(
            request.identity, entity, dataclasses.replace(update, links=links), replace=replace
        )
        return answer(render_entity(changed, rendering, request.base, self._backend.model()))

    def _bases(self, request: OcciRequest) -> tuple[str, ...]:
        host = request.header("host")
        return (request.base, *((f"https://{host}",) if host else ()), *self._endpoints)

    async def _may_create(self, request: OcciRequest, wanted: Sequence[Checked]) -> None:
        """Check every kind and every user mixin of a batch and of its inline links, and where its links start."""
        every = [item for entity in wanted for item in (entity, *entity.links)]
        for location in sorted({item.kind.location for item in every}):
            await self._backend.may(request.identity, Verb.CREATE, location)
        for location in sorted({mixin.location for item in every for mixin in item.mixins if mixin.user}):
            await self._backend.may(request.identity, Verb.UPDATE, location)
        for source in sorted({item.source for item in wanted if item.source.startswith("/")}):
            await self._backend.may(request.identity, Verb.GET, source)
            await self._backend.find(source)  # another frontend may have made it just now

    async def _create_all(self, request: OcciRequest, wanted: Sequence[Checked], model: Model) -> list[Entity]:
        """Create resources, then links (which may need them); take back what was made when one fails."""
        order = sorted(range(len(wanted)), key=lambda place: LINK in model.lineage(wanted[place].kind.id))
        created: dict[int, Entity] = {}
        try:
            for place in order:
                key = f"{request.key}-{place}" if request.key and place else request.key
                with _naming(place + 1, len(wanted)):
                    created[place] = await self._backend.create(request.identity, wanted[place], key=key)
        except BaseException:
            if created:
                await self._take_back(request, tuple(created.values()))
            raise
        return [created[place] for place in range(len(wanted))]

    async def _take_back(self, request: OcciRequest, entities: Sequence[Entity]) -> None:
        try:
            await self._backend.delete(request.identity, entities)
        except OcciError:
            log.exception("of a batch that failed, these remain: %s", ", ".join(entity.path for entity in entities))

    async def _located(self, request: OcciRequest, locations: Sequence[str]) -> list[Entity]:
        entities = []
        for location in locations:
            path = path_of(location, *self._bases(request))
            if not path.startswith("/"):
                raise OcciError(400, f"X-OCCI-Location: {shown(location)} is no entity of ours")
            await self._backend.may(request.identity, Verb.GET, path)
            entities.append(await self._reader.found(path))
        return entities


def done(rendering: Rendering) -> OcciResponse:
    """The response that says no more than that it is done."""
    if rendering is Rendering.JSON:
        return OcciResponse(200, b"{}", "application/occi+json")
    if rendering is Rendering.URI_LIST:
        return OcciResponse(200, b"", "text/uri-list; charset=utf-8")
    return OcciResponse(200, b"OK", f"{rendering}; charset=utf-8")


def _created(entities: Sequence[Entity], rendering: Rendering, base: str) -> OcciResponse:
    """Where they are: in text/plain also for who accepts JSON alone (section 12.10)."""
    rendering = Rendering.TEXT_PLAIN if rendering is Rendering.JSON else rendering
    paths = [entity.path for entity in entities]
    headers = (("Location", base + paths[0]),) if len(paths) == 1 else ()
    return answer(render_locations(paths, rendering, base), headers, 201)


def _result(action: Action, result: Mapping[str, Value], rendering: Rendering) -> OcciResponse:
    """The result of an action as attributes: an invocation in JSON, lines or a header in text."""
    if rendering is Rendering.JSON:
        return OcciResponse(200, json_of({"action": action.id, "attributes": result}), rendering)
    if rendering is Rendering.URI_LIST:
        return done(rendering)
    lines = [(ATTRIBUTE, f"{name}={value_text(value)}") for name, value in result.items()]
    if rendering is Rendering.TEXT_OCCI:
        return dataclasses.replace(done(rendering), headers=headers_of(lines))
    return OcciResponse(200, body_of(lines), f"{rendering}; charset=utf-8")


def _draft(request: OcciRequest, model: Model) -> Draft:
    """What was sent: in the headers, if there is neither a body nor a word of what it would be."""
    header = request.header("content-type")
    rendering = content_type(header) if header is not None or request.body else Rendering.TEXT_OCCI
    return parse(rendering, request.headers, request.body, model)


def _creation(draft: Draft, model: Model, bases: Sequence[str], target: Collection) -> Checked:
    checked = check_creation(draft, model)
    kind = target.category
    if isinstance(kind, Kind) and kind.id not in model.lineage(checked.kind.id):
        raise OcciError(
            400, f"Category: {checked.kind.term} is created at {checked.kind.location}, not at {target.location}"
        )
    return _local(checked, bases)


def _local(checked: Checked, bases: Sequence[str]) -> Checked:
    """With paths instead of URIs of ours."""
    return dataclasses.replace(
        checked,
        source=path_of(checked.source, *bases),
        target=path_of(checked.target, *bases),
        links=tuple(_local(link, bases) for link in checked.links),
    )


def _query_draft(draft: Draft, request: OcciRequest, action: Action) -> Draft:
    """All in the query are parameters, ``wait`` only of an action that has one of that name."""
    values: dict[str, Value] = {name: text for name, text in request.query.items() if name not in ("action", "wait")}
    declared = next((spec for spec in action.attributes if spec.name == "wait"), None)
    if declared is not None and "wait" in request.query:
        is_flag = declared.type is ValueType.BOOLEAN
        values["wait"] = flag(request.query, "wait", False) if is_flag else request.query["wait"]
    return dataclasses.replace(draft, action=action.id, attributes={**values, **draft.attributes})


@contextmanager
def _naming(place: int, number: int) -> Iterator[None]:
    """Say which entity of a batch is refused."""
    try:
        yield
    except OcciError as error:
        if number == 1:
            raise
        raise OcciError(error.status, f"entity {place} of {number}: {error.message}") from error


def _check_number(entities: int, links: int) -> None:
    """Refuse what would keep everybody waiting for long, and may be made by halves when its time is over.

    Raises:
        OcciError: 413.
    """
    for number, what in ((entities, "entities"), (links, "inline links")):
        if number > MOST_MADE:
            raise OcciError(413, f"{number} {what} in one request: at most {MOST_MADE} are made; send several requests")


def _locations(draft: Draft, mixin: Mixin, model: Model) -> tuple[str, ...]:
    """The entities that a request for a mixin names: by location, or as the members of a collection in JSON.

    Raises:
        OcciError: 400, it says something, but not which.
    """
    if draft.locations:
        return draft.locations
    if draft == Draft():
        return ()
    found: list[str] = []
    for member in draft.each:
        kind = model.kind(member.kind)
        name = member.attributes.get(ID)
        if member.locations:
            found.extend(member.locations)
        elif kind is not None and kind.location and isinstance(name, str):
            found.append(kind.location + name.removeprefix("urn:uuid:"))
        else:
            raise _no_locations(mixin)
    return tuple(found)


def _no_locations(mixin: Mixin) -> OcciError:
    return OcciError(400, f"{mixin.location} is the location of a mixin: send X-OCCI-Location, one per entity")
