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
from simyard.frontend.preconditions import check_conditions, is_conditional, state_of
from simyard.frontend.reading import Reader, answer, flag
from simyard.frontend.renderings import Renderings
from simyard.frontend.sent import draft_of, member_names, names_of, refuse_unselective
from simyard.frontend.targets import DISCOVERY_PATH, Collection, Instance, location_of
from simyard.occi import pages
from simyard.occi.definitions import check_definitions, check_removals
from simyard.occi.errors import OcciError, shown
from simyard.occi.invocations import action_of_term, check_invocation
from simyard.occi.model import ID, LINK, Action, Draft, Entity, Kind, Link, Mixin, Model, Value, ValueType, path_of
from simyard.occi.negotiation import Rendering, choose
from simyard.occi.rendering import (
    Rendered,
    render_collection,
    render_entity_part,
    render_locations,
)
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
        rendering = choose(request.header("accept"))
        await self._backend.may(request.identity, Verb.CREATE, DISCOVERY_PATH)
        model = self._backend.model()
        await self._backend.define(request.identity, check_definitions(draft_of(request, model), model))
        return done(rendering)

    async def undefine(self, request: OcciRequest) -> OcciResponse:
        """DELETE of user mixins."""
        rendering = choose(request.header("accept"))
        await self._backend.may(request.identity, Verb.DELETE, DISCOVERY_PATH)
        model = self._backend.model()
        await self._backend.undefine(request.identity, check_removals(draft_of(request, model), model))
        return done(rendering)

    async def associate(self, request: OcciRequest, mixin: Mixin, *, replace: bool) -> OcciResponse:
        """POST or PUT of X-OCCI-Location to a mixin: more members, or only these."""
        rendering = choose(request.header("accept"))
        await self._backend.may(request.identity, Verb.UPDATE, mixin.location)
        model = self._backend.model()
        locations = member_names(draft_of(request, model), model)
        if not locations and not replace:
            raise _no_locations(mixin)
        entities = await self._located(request, locations)
        for entity in entities:
            check_association(mixin, entity, model)
        paths = [entity.path for entity in entities]
        await self._backend.associate(request.identity, mixin, paths, replace=replace)
        return answer(_rendered(tuple(self._backend.entities(paths)), rendering, request.base, self._backend.model()))

    async def dissociate(self, request: OcciRequest, mixin: Mixin) -> OcciResponse:
        """DELETE of X-OCCI-Location from a mixin; without any, of all members, or of a page of them."""
        rendering = choose(request.header("accept"))
        await self._backend.may(request.identity, Verb.UPDATE, mixin.location)
        model = self._backend.model()
        locations = member_names(draft_of(request, model), model)
        paths = [path_of(location, *self._bases(request)) for location in locations]
        page = pages.page(request.query)
        if paths and page != pages.Page():
            raise OcciError(400, "a page beside X-OCCI-Location: send one of them; nothing was done")
        paths = paths or list(page.of(self._backend.paths(mixin.location)))
        await self._backend.dissociate(request.identity, mixin, paths)
        return done(rendering)

    async def create(self, request: OcciRequest, target: Collection) -> OcciResponse:
        """POST to a kind, or to an unbound path: one entity, or a batch of which all or none is made."""
        rendering = choose(request.header("accept"))
        if isinstance(target.category, Kind):
            await self._backend.may(request.identity, Verb.CREATE, target.location)
        model = self._backend.model()
        drafts = draft_of(request, model).each
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
        rendering = choose(request.header("accept"))
        await self._backend.may(request.identity, Verb.UPDATE, path)
        model = self._backend.model()
        draft = draft_of(request, model)
        if draft == Draft():
            raise OcciError(400, "PUT replaces an entity: send its Category or attributes; to keep what is there, POST")
        entity = self._backend.entity(path) or await self._backend.find(path)
        if entity is not None:
            return await self._update(request, entity, draft, rendering, replace=True)
        check_conditions(request, None)
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
        rendering = choose(request.header("accept"))
        await self._backend.may(request.identity, Verb.UPDATE, path)
        draft = draft_of(request, self._backend.model())
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
        check_conditions(request, state_of(entity, self._backend.model()))
        await self._backend.delete(request.identity, (entity,), key=request.key)
        return done(rendering)

    async def delete_all(self, request: OcciRequest, target: Collection) -> OcciResponse:
        """DELETE of members of a kind, or below a path: of those that a request names, or that pass its filter."""
        rendering = choose(request.header("accept"))
        if isinstance(target.category, Kind):
            await self._backend.may(request.identity, Verb.DELETE, target.location)
        model = self._backend.model()
        draft = draft_of(request, model)
        refuse_unselective(draft)
        named = names_of(draft, model)
        found = [entity.path for entity in await self._located(request, named)] if named is not None else []
        paths = await self._reader.selected(request, target, dataclasses.replace(draft, locations=(), members=()))
        if named is not None:
            for path in sorted(set(found) - set(paths)):
                raise OcciError(400, f"X-OCCI-Location: {path} is not among what is asked for here; nothing was done")
            paths = found
        selected = tuple(self._backend.entities(paths))
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
        draft = draft_of(request, model)
        path = target.path if isinstance(target, Instance) else target.location
        if draft.action or draft.definitions:
            found = model.action(draft.action)
            if found is None:
                raise OcciError(400, f"Category: {shown(draft.action or term)} is no action that is known here")
            await self._backend.may(request.identity, Verb.ACT, path, draft.action)
            on = await self._on(request, target)
        else:  # the form of old clients of the Cloud4E binding, with everything in the query
            await self._backend.may(request.identity, Verb.GET if isinstance(target, Instance) else Verb.LIST, path)
            on = await self._on(request, target)
            found = action_of_term(term, on, model)
            draft = dataclasses.replace(draft, action=found.id)
            await self._backend.may(request.identity, Verb.ACT, path, draft.action)
        parameters = {name: text for name, text in request.query.items() if name != "action"}
        wait = _take_wait(parameters, found, draft)
        action, attributes = check_invocation(draft, term, on, model, parameters)
        entities = on if isinstance(on, tuple) else (on,)
        if not isinstance(on, tuple):
            check_conditions(request, state_of(on, model))
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

        def check() -> None:
            now = self._backend.entity(entity.path)
            check_conditions(request, None if now is None else state_of(now, self._backend.model()))

        check_conditions(request, state_of(entity, model))
        changed = await self._backend.update(
            request.identity,
            entity,
            dataclasses.replace(update, links=links),
            replace=replace,
            check=check if is_conditional(request) else None,
        )
        if rendering is Rendering.URI_LIST:  # Cloud4E's client accepts nothing else of any POST
            return answer(render_locations([changed.path], rendering, request.base))
        shown = self._renderings.entity(changed, rendering, request.base, self._backend.model())
        return answer(shown.rendered)

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


def _rendered(entities: Sequence[Entity], rendering: Rendering, base: str, model: Model) -> Rendered:
    """Return entities as listings show them: in full in JSON, else their locations."""
    if rendering is not Rendering.JSON:
        return render_locations([entity.path for entity in entities], rendering, base)
    parts = [(isinstance(entity, Link), render_entity_part(entity, rendering, model)) for entity in entities]
    resources, links = ([part for is_link, part in parts if is_link is wanted] for wanted in (False, True))
    return render_collection(resources, links, rendering)


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


def _take_wait(parameters: dict[str, str], action: Action, draft: Draft) -> bool | None:
    """Take ``wait`` out of the query's parameters unless it is one of the action's; return its value, None without it.

    An action's own ``wait`` is given in the query or in the body; beside one in the body, that in the query is ours.
    """
    declared = next((spec for spec in action.attributes if spec.name == "wait"), None)
    if "wait" not in parameters:
        return None
    if declared is None or "wait" in draft.attributes:
        return flag({"wait": parameters.pop("wait")}, "wait", False)
    if declared.type is ValueType.BOOLEAN:
        parameters["wait"] = "true" if flag(parameters, "wait", False) else "false"
    return None


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


def _no_locations(mixin: Mixin) -> OcciError:
    return OcciError(400, f"{mixin.location} is the location of a mixin: send X-OCCI-Location, one per entity")
