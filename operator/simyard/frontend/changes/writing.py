# SPDX-License-Identifier: Apache-2.0
"""Handles POST, PUT and DELETE: checks the right, reads the request, and makes one change.

The handlers refuse a user without the necessary right before they look up an entity, so the user learns nothing about
entities. Every user with a token can see which paths and categories exist.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from simyard.frontend.backend import Backend, Invocation, Verb
from simyard.frontend.changes.preconditions import check_conditions, compute_state_digest, make_check
from simyard.frontend.changes.responses import (
    make_creation_response,
    make_empty_response,
    make_result_response,
    render_entities,
)
from simyard.frontend.changes.sent import read_draft, read_locations, read_members, refuse_unselective
from simyard.frontend.entities.renderings import Renderings
from simyard.frontend.entities.targets import DISCOVERY_PATH, Collection, Instance, parse_location
from simyard.frontend.exchange import OcciRequest, OcciResponse
from simyard.frontend.reading import Reader, read_flag, respond
from simyard.occi import pages
from simyard.occi.conflicts import OcciConflictError
from simyard.occi.definitions import check_definitions, check_removals
from simyard.occi.errors import OcciError, quote_input
from simyard.occi.invocations import check_invocation, find_action
from simyard.occi.model import ID, LINK, Action, Draft, Entity, Kind, Mixin, Model, ValueType, strip_base
from simyard.occi.negotiation import Rendering, choose_rendering
from simyard.occi.rendering import (
    render_locations,
)
from simyard.occi.validation import Checked, check_association, check_creation, check_update

log = logging.getLogger(__name__)

MAX_ENTITIES = 100
"""Maximum number of entities in a batch, and of inline links in a request."""


class Writer:
    """Handlers of requests that change something."""

    def __init__(
        self, backend: Backend, reader: Reader, renderings: Renderings, endpoints: tuple[str, ...] = ()
    ) -> None:
        """Create the handlers.

        ``endpoints`` are further URLs of this frontend: a URI that begins with one of them names an entity here.
        """
        self._backend = backend
        self._endpoints = endpoints
        self._reader = reader
        self._renderings = renderings

    async def define(self, request: OcciRequest) -> OcciResponse:
        """Answer POST of user mixins, with their actions, to the query interface."""
        rendering = choose_rendering(request.get_header("accept"))
        await self._backend.may(request.identity, Verb.CREATE, DISCOVERY_PATH)
        model = self._backend.get_model()
        await self._backend.define(request.identity, check_definitions(read_draft(request, model), model))
        return make_empty_response(rendering)

    async def undefine(self, request: OcciRequest) -> OcciResponse:
        """Answer DELETE of user mixins."""
        rendering = choose_rendering(request.get_header("accept"))
        await self._backend.may(request.identity, Verb.DELETE, DISCOVERY_PATH)
        model = self._backend.get_model()
        await self._backend.undefine(request.identity, check_removals(read_draft(request, model), model))
        return make_empty_response(rendering)

    async def associate(self, request: OcciRequest, mixin: Mixin, *, replace: bool) -> OcciResponse:
        """Answer POST or PUT of X-OCCI-Location to a mixin: add members, or replace all members."""
        rendering = choose_rendering(request.get_header("accept"))
        await self._backend.may(request.identity, Verb.UPDATE, mixin.location)
        model = self._backend.get_model()
        locations = read_members(read_draft(request, model), model)
        if not locations and not replace:
            raise _no_locations(mixin)
        entities = await self._find_located(request, locations)
        for entity in entities:
            check_association(mixin, entity, model)
        paths = [entity.path for entity in entities]
        await self._backend.associate(request.identity, mixin, paths, replace=replace)
        return respond(
            render_entities(
                tuple(self._backend.list_entities(paths)), rendering, request.base, self._backend.get_model()
            )
        )

    async def dissociate(self, request: OcciRequest, mixin: Mixin) -> OcciResponse:
        """Answer DELETE to a mixin: remove the members in X-OCCI-Location; if there are none, all members or a page."""
        rendering = choose_rendering(request.get_header("accept"))
        await self._backend.may(request.identity, Verb.UPDATE, mixin.location)
        model = self._backend.get_model()
        locations = read_members(read_draft(request, model), model)
        paths = [strip_base(location, *self._bases(request)) for location in locations]
        page = pages.read_page(request.query)
        if paths and page != pages.Page():
            raise OcciError(400, "the request has a page and X-OCCI-Location; nothing was done; send only one of them")
        paths = paths or list(page.select(self._backend.list_paths(mixin.location)))
        await self._backend.dissociate(request.identity, mixin, paths)
        return make_empty_response(rendering)

    async def create(self, request: OcciRequest, target: Collection) -> OcciResponse:
        """Answer POST to a kind or to an unbound path: create one entity, or a batch of entities (all or none)."""
        rendering = choose_rendering(request.get_header("accept"))
        if isinstance(target.category, Kind):
            await self._backend.may(request.identity, Verb.CREATE, target.location)
        model = self._backend.get_model()
        drafts = read_draft(request, model).each
        _check_number(len(drafts), sum(len(draft.links) for draft in drafts))
        wanted = []
        for place, draft in enumerate(drafts, 1):
            with _name_refused_entity(place, len(drafts)):
                wanted.append(_checked_creation(draft, model, self._bases(request), target))
        await self._may_create(request, wanted)
        created = await self._create_all(request, wanted, model)
        return make_creation_response(created, rendering, request.base)

    async def put(self, request: OcciRequest, path: str, kind: Kind) -> OcciResponse:
        """Answer PUT of an entity: replace the existing entity without its links, or create an entity with this id."""
        rendering = choose_rendering(request.get_header("accept"))
        await self._backend.may(request.identity, Verb.UPDATE, path)
        model = self._backend.get_model()
        draft = read_draft(request, model)
        if draft == Draft():
            raise OcciError(
                400, "PUT replaces an entity: send its Category or attributes; to change a part of it, send POST"
            )
        entity = self._backend.get_entity(path) or await self._backend.find(path)
        if entity is not None:
            return await self._update(request, entity, draft, rendering, replace=True)
        check_conditions(request, None)
        _check_number(1, len(draft.links))
        name = path[len(kind.location) :]
        draft = dataclasses.replace(draft, attributes={**draft.attributes, ID: name})
        checked = _checked_creation(draft, model, self._bases(request), Collection(kind.location, kind))
        if not checked.id:
            raise OcciError(
                400, f"{quote_input(path)}: an id has at most 253 characters, of letters, digits and . _ ~ - only"
            )
        await self._may_create(request, [checked])
        try:
            created = await self._backend.create(request.identity, checked, key=request.key, exact=True)
        except OcciConflictError:
            if (entity := await self._backend.find(path)) is None:
                raise
            return await self._update(
                request, entity, draft, rendering, replace=True
            )  # another request has just created it
        return make_creation_response([created], rendering, request.base)

    async def update(self, request: OcciRequest, path: str) -> OcciResponse:
        """Answer POST of an entity: change the parts that are sent, and keep the rest."""
        rendering = choose_rendering(request.get_header("accept"))
        await self._backend.may(request.identity, Verb.UPDATE, path)
        draft = read_draft(request, self._backend.get_model())
        return await self._update(request, await self._reader.find_entity(path), draft, rendering, replace=False)

    async def delete(self, request: OcciRequest, path: str) -> OcciResponse:
        """Answer DELETE of an entity and its links."""
        rendering = choose_rendering(request.get_header("accept"))
        await self._backend.may(request.identity, Verb.DELETE, path)
        try:
            entity = await self._reader.find_entity(path)
        except OcciError:
            if self._backend.was_deleted(path, request.key):
                return make_empty_response(rendering)
            raise
        check_conditions(request, compute_state_digest(entity, self._backend.get_model()))
        check = make_check(request, self._backend, path)
        await self._backend.delete(request.identity, (entity,), key=request.key, check=check)
        return make_empty_response(rendering)

    async def delete_all(self, request: OcciRequest, target: Collection) -> OcciResponse:
        """Answer DELETE of members of a kind or below a path: the named members, or members that pass the filter."""
        rendering = choose_rendering(request.get_header("accept"))
        if isinstance(target.category, Kind):
            await self._backend.may(request.identity, Verb.DELETE, target.location)
        model = self._backend.get_model()
        draft = read_draft(request, model)
        refuse_unselective(draft)
        named = read_locations(draft, model)
        found = [entity.path for entity in await self._find_located(request, named)] if named is not None else []
        paths = await self._reader.select_paths(request, target, dataclasses.replace(draft, locations=(), members=()))
        if named is not None:
            for path in sorted(set(found) - set(paths)):
                problem = "is not a member here or does not pass the filter; nothing was done"
                raise OcciError(400, f"X-OCCI-Location: {path} {problem}")
            paths = found
        selected = tuple(self._backend.list_entities(paths))
        entities = tuple(entity for entity in selected if not self._backend.is_permanent(entity.path))
        if isinstance(target.category, Kind) and not entities:
            entities = selected  # the error then says why none of them can be deleted
        for location in sorted({parse_location(entity.path) for entity in entities}):
            await self._backend.may(request.identity, Verb.DELETE, location)
        await self._backend.delete(request.identity, entities)
        return make_empty_response(rendering)

    async def act(self, request: OcciRequest, target: Collection | Instance, term: str) -> OcciResponse:
        """Answer POST of ``?action=TERM`` to an entity, or to all members of a collection."""
        rendering = choose_rendering(request.get_header("accept"))
        model = self._backend.get_model()
        draft = read_draft(request, model)
        action, subject = await self._authorize_action(request, target, term, draft, model)
        draft = dataclasses.replace(draft, action=action.id)
        parameters = {name: text for name, text in request.query.items() if name != "action"}
        wait = _pop_wait(parameters, action, draft)
        action, attributes = check_invocation(draft, term, subject, model, parameters)
        check = None
        if not isinstance(subject, tuple):
            check_conditions(request, compute_state_digest(subject, model))
            check = make_check(request, self._backend, subject.path)
        entities = subject if isinstance(subject, tuple) else (subject,)
        invocation = Invocation(request.identity, action, attributes, wait, request.key, check)
        result = await self._backend.act(entities, invocation)
        return make_empty_response(rendering) if result is None else make_result_response(action, result, rendering)

    async def _authorize_action(
        self, request: OcciRequest, target: Collection | Instance, term: str, draft: Draft, model: Model
    ) -> tuple[Action, Entity | tuple[Entity, ...]]:
        """Return the action of a request and its entities, if the user has the right to this action on them.

        The Category in a request identifies the action, so the method checks the right once, before it looks up an
        entity. Old clients of the Cloud4E binding send only the term of the action. The meaning of a term depends on
        the entities, so these clients first need the right to read the entities. The right to act on a collection is
        valid for its members of all kinds.

        Raises:
            OcciError: 400, no such action; 403; 404, no such entity.
        """
        path = target.path if isinstance(target, Instance) else target.location
        if not draft.action and not draft.definitions:
            await self._backend.may(request.identity, Verb.GET if isinstance(target, Instance) else Verb.LIST, path)
            subject = await self._find_subject(request, target)
            action = find_action(term, subject, model)
            await self._backend.may(request.identity, Verb.ACT, path, action.id)
            return action, subject
        found = model.find_action(draft.action)
        if found is None:
            raise OcciError(
                400, f"Category: {quote_input(draft.action or term)} is not a known action; GET /-/ lists the actions"
            )
        await self._backend.may(request.identity, Verb.ACT, path, found.id)
        return found, await self._find_subject(request, target)

    async def _find_subject(self, request: OcciRequest, target: Collection | Instance) -> Entity | tuple[Entity, ...]:
        if isinstance(target, Instance):
            return await self._reader.find_entity(target.path)
        members = await self._reader.list_members(request.identity, target)
        return tuple(self._backend.list_entities(members.paths))

    async def _update(
        self, request: OcciRequest, entity: Entity, draft: Draft, rendering: Rendering, *, replace: bool
    ) -> OcciResponse:
        model = self._backend.get_model()
        update = check_update(draft, entity, model, replace)
        links = tuple(_localize(link, self._bases(request)) for link in update.links)
        _check_number(1, len(links))
        await self._may_create(request, links)

        check_conditions(request, compute_state_digest(entity, model))
        changed = await self._backend.update(
            request.identity,
            entity,
            dataclasses.replace(update, links=links),
            replace=replace,
            check=make_check(request, self._backend, entity.path),
        )
        if rendering is Rendering.URI_LIST:  # Cloud4E's client accepts only this answer to a POST
            return respond(render_locations([changed.path], rendering, request.base))
        shown = self._renderings.render_entity(changed, rendering, request.base, self._backend.get_model())
        return respond(shown.rendered)

    def _bases(self, request: OcciRequest) -> tuple[str, ...]:
        host = request.get_header("host")
        return (request.base, *((f"https://{host}",) if host else ()), *self._endpoints)

    async def _may_create(self, request: OcciRequest, wanted: Sequence[Checked]) -> None:
        """Check the rights to create the entities of a batch and their inline links, and to add their user mixins."""
        every = [item for entity in wanted for item in (entity, *entity.links)]
        for location in sorted({item.kind.location for item in every}):
            await self._backend.may(request.identity, Verb.CREATE, location)
        for location in sorted({mixin.location for item in every for mixin in item.mixins if mixin.user}):
            await self._backend.may(request.identity, Verb.UPDATE, location)
        for source in sorted({item.source for item in wanted if item.source.startswith("/")}):
            await self._backend.may(request.identity, Verb.GET, source)
            await self._backend.find(source)  # another frontend may just have created it

    async def _create_all(self, request: OcciRequest, wanted: Sequence[Checked], model: Model) -> list[Entity]:
        """Create the resources, then the links, which may need them; if a creation fails, delete all of them."""
        order = sorted(range(len(wanted)), key=lambda place: LINK in model.list_lineage(wanted[place].kind.id))
        created: dict[int, Entity] = {}
        try:
            for place in order:
                key = f"{request.key}-{place}" if request.key and place else request.key
                with _name_refused_entity(place + 1, len(wanted)):
                    created[place] = await self._backend.create(request.identity, wanted[place], key=key)
        except BaseException:
            if created:
                await self._delete_created(request, tuple(created.values()))
            raise
        return [created[place] for place in range(len(wanted))]

    async def _delete_created(self, request: OcciRequest, entities: Sequence[Entity]) -> None:
        try:
            await self._backend.delete(request.identity, entities)
        except OcciError:
            log.exception(
                "entities of a failed batch could not be deleted: %s", ", ".join(entity.path for entity in entities)
            )

    async def _find_located(self, request: OcciRequest, locations: Sequence[str]) -> list[Entity]:
        entities = []
        for location in locations:
            path = strip_base(location, *self._bases(request))
            if not path.startswith("/"):
                raise OcciError(400, f"X-OCCI-Location: {quote_input(location)} is not an entity of this frontend")
            await self._backend.may(request.identity, Verb.GET, path)
            entities.append(await self._reader.find_entity(path))
        return entities


def _checked_creation(draft: Draft, model: Model, bases: Sequence[str], target: Collection) -> Checked:
    checked = check_creation(draft, model)
    kind = target.category
    if isinstance(kind, Kind) and kind.id not in model.list_lineage(checked.kind.id):
        raise OcciError(
            400, f"Category: {checked.kind.term} is created at {checked.kind.location}, not at {target.location}"
        )
    return _localize(checked, bases)


def _localize(checked: Checked, bases: Sequence[str]) -> Checked:
    """Return a checked entity in which paths replace the URIs of this frontend."""
    return dataclasses.replace(
        checked,
        source=strip_base(checked.source, *bases),
        target=strip_base(checked.target, *bases),
        links=tuple(_localize(link, bases) for link in checked.links),
    )


def _pop_wait(parameters: dict[str, str], action: Action, draft: Draft) -> bool | None:
    """Remove ``wait`` from the parameters of the query and return its value; None if the query has none.

    If the action declares a parameter ``wait``, a ``wait`` in the query is also this parameter, unless the body has it.
    """
    declared = next((spec for spec in action.attributes if spec.name == "wait"), None)
    if "wait" not in parameters:
        return None
    if declared is None or "wait" in draft.attributes:
        return read_flag({"wait": parameters.pop("wait")}, "wait", False)
    if declared.type is ValueType.BOOLEAN:
        parameters["wait"] = "true" if read_flag(parameters, "wait", False) else "false"
    return None


@contextmanager
def _name_refused_entity(place: int, number: int) -> Iterator[None]:
    """Run a block, and put the number of the entity in its batch in front of the message of an error."""
    try:
        yield
    except OcciError as error:
        if number == 1:
            raise
        raise OcciError(error.status, f"entity {place} of {number}: {error.message}") from error


def _check_number(entities: int, links: int) -> None:
    """Raise an error if a request has too many entities: it would delay other requests, and could reach its time limit.

    Raises:
        OcciError: 413.
    """
    for number, what in ((entities, "entities"), (links, "inline links")):
        if number > MAX_ENTITIES:
            raise OcciError(
                413, f"{number} {what} in one request: at most {MAX_ENTITIES} are made; send several requests"
            )


def _no_locations(mixin: Mixin) -> OcciError:
    return OcciError(400, f"{mixin.location} is the location of a mixin: send X-OCCI-Location, one per entity")
