"""POST, PUT and DELETE: who may, what is asked for, and then one change.

Somebody who may not do it is told so before anything is looked up: whoever may nothing learns nothing.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence

from simyard.frontend.backend import Backend, Verb
from simyard.frontend.exchange import OcciRequest, OcciResponse
from simyard.frontend.reading import Reader, answer, flag, instance_rendering
from simyard.frontend.renderings import Renderings
from simyard.frontend.targets import DISCOVERY_PATH, Collection, Instance, location_of
from simyard.occi.definitions import check_definitions, check_removals
from simyard.occi.errors import OcciError, shown
from simyard.occi.invocations import action_of_term, check_invocation
from simyard.occi.model import ID, LINK, Action, Draft, Entity, Kind, Mixin, Model, Value, path_of
from simyard.occi.negotiation import Rendering, choose, content_type
from simyard.occi.parsing import parse
from simyard.occi.rendering import render_entity, render_locations
from simyard.occi.text_rendering import ATTRIBUTE, body_of, headers_of, value_text
from simyard.occi.validation import Checked, check_association, check_creation, check_update
from simyard.occi.values import json_of

log = logging.getLogger(__name__)

RESERVED = frozenset({"action", "wait", "fresh", "full", "page", "number"})
"""Names in a query that are ours; any other is a parameter of the action."""


class Writer:
    """Carries out what changes something."""

    def __init__(self, backend: Backend, reader: Reader, renderings: Renderings) -> None:
        self._backend = backend
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
        draft = _draft(request, model)
        if not draft.locations and (not replace or draft.kind or draft.mixins):
            raise OcciError(400, f"{mixin.location} is the location of a mixin: send X-OCCI-Location, one per entity")
        entities = await self._located(request, draft)
        for entity in entities:
            check_association(mixin, entity, model)
        paths = [entity.path for entity in entities]
        await self._backend.associate(request.identity, mixin, paths, replace=replace)
        return done(rendering)

    async def dissociate(self, request: OcciRequest, mixin: Mixin) -> OcciResponse:
        """DELETE of X-OCCI-Location from a mixin; without any, of all members."""
        rendering = choose(request.header("accept"))
        await self._backend.may(request.identity, Verb.UPDATE, mixin.location)
        draft = _draft(request, self._backend.model())
        paths = [path_of(location, request.base) for location in draft.locations]
        await self._backend.dissociate(request.identity, mixin, paths or self._backend.paths(mixin.location))
        return done(rendering)

    async def create(self, request: OcciRequest, target: Collection) -> OcciResponse:
        """POST to a kind, or to an unbound path: one entity, or a batch of which all or none is made."""
        rendering = choose(request.header("accept"))
        if isinstance(target.category, Kind):
            await self._backend.may(request.identity, Verb.CREATE, target.location)
        model = self._backend.model()
        wanted = [_creation(draft, model, request, target) for draft in _draft(request, model).each]
        await self._may_create(request, wanted)
        created = await self._create_all(request, wanted, model)
        return _created(created, rendering, request.base)

    async def put(self, request: OcciRequest, path: str, kind: Kind) -> OcciResponse:
        """PUT of an entity: replace the one that is there (its links stay), or create one with that id."""
        rendering = instance_rendering(request)
        await self._backend.may(request.identity, Verb.UPDATE, path)
        model = self._backend.model()
        draft = _draft(request, model)
        entity = self._backend.entity(path) or await self._backend.find(path)
        if entity is not None:
            return await self._update(request, entity, draft, rendering, replace=True)
        name = path[len(kind.location) :]
        draft = dataclasses.replace(draft, attributes={**draft.attributes, ID: name})
        checked = _creation(draft, model, request, Collection(kind.location, kind))
        if not checked.id:
            raise OcciError(400, f"{shown(path)}: an id is of letters, digits and . _ ~ - only")
        await self._may_create(request, [checked])
        return _created(
            [await self._backend.create(request.identity, checked, key=request.key)], rendering, request.base
        )

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
        await self._backend.delete(request.identity, (await self._reader.found(path),))
        return done(rendering)

    async def delete_all(self, request: OcciRequest, target: Collection) -> OcciResponse:
        """DELETE of all members of a kind, or below a path, that the asker may see and a filter lets through."""
        rendering = choose(request.header("accept"))
        if isinstance(target.category, Kind):
            await self._backend.may(request.identity, Verb.DELETE, target.location)
        entities = await self._reader.selected(request, target)
        for location in sorted({location_of(entity.path) for entity in entities}):
            await self._backend.may(request.identity, Verb.DELETE, location)
        await self._backend.delete(request.identity, entities)
        return done(rendering)

    async def act(self, request: OcciRequest, target: Collection | Instance, term: str) -> OcciResponse:
        """POST of ``?action=TERM`` to an entity, or to all members of a collection."""
        rendering = choose(request.header("accept"))
        wait = flag(request.query, "wait", False)
        model = self._backend.model()
        draft = _draft(request, model)
        path = target.path if isinstance(target, Instance) else target.location
        if draft.action or draft.definitions:
            if model.action(draft.action) is None:
                raise OcciError(400, f"Category: {shown(draft.action or term)} is no action that is known here")
            await self._backend.may(request.identity, Verb.ACT, path, draft.action)
            on = await self._on(request, target)
        else:  # the form of old clients of the Cloud4E binding, with everything in the query
            await self._backend.may(request.identity, Verb.GET if isinstance(target, Instance) else Verb.LIST, path)
            on = await self._on(request, target)
            draft = _query_draft(draft, request, action_of_term(term, on, model).id)
            await self._backend.may(request.identity, Verb.ACT, path, draft.action)
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
        links = tuple(_local(link, request.base) for link in update.links)
        await self._may_create(request, links)
        changed = await self._backend.update(
            request.identity, entity, dataclasses.replace(update, links=links), replace=replace
        )
        return answer(render_entity(changed, rendering, request.base, self._backend.model()))

    async def _may_create(self, request: OcciRequest, wanted: Sequence[Checked]) -> None:
        """Check every kind of a batch, and of its inline links."""
        locations = {item.kind.location for entity in wanted for item in (entity, *entity.links)}
        for location in sorted(locations):
            await self._backend.may(request.identity, Verb.CREATE, location)

    async def _create_all(self, request: OcciRequest, wanted: Sequence[Checked], model: Model) -> list[Entity]:
        """Create resources, then links (which may need them); take back what was made when one fails."""
        order = sorted(range(len(wanted)), key=lambda place: LINK in model.lineage(wanted[place].kind.id))
        created: dict[int, Entity] = {}
        try:
            for place in order:
                key = f"{request.key}-{place}" if request.key and place else request.key
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

    async def _located(self, request: OcciRequest, draft: Draft) -> list[Entity]:
        entities = []
        for location in draft.locations:
            path = path_of(location, request.base)
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


def _creation(draft: Draft, model: Model, request: OcciRequest, target: Collection) -> Checked:
    checked = check_creation(draft, model)
    kind = target.category
    if isinstance(kind, Kind) and kind.id not in model.lineage(checked.kind.id):
        raise OcciError(
            400, f"Category: {checked.kind.term} is created at {checked.kind.location}, not at {target.location}"
        )
    return _local(checked, request.base)


def _local(checked: Checked, base: str) -> Checked:
    """With paths instead of URIs of ours."""
    return dataclasses.replace(
        checked,
        source=path_of(checked.source, base),
        target=path_of(checked.target, base),
        links=tuple(_local(link, base) for link in checked.links),
    )


def _query_draft(draft: Draft, request: OcciRequest, action: str) -> Draft:
    values: Mapping[str, Value] = {name: text for name, text in request.query.items() if name not in RESERVED}
    return dataclasses.replace(draft, action=action, attributes={**values, **draft.attributes})
