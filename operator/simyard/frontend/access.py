"""What somebody may do over OCCI: what their Kubernetes identity may do to the objects behind.

Reading takes ``get`` or ``list`` of the objects, and of SimulationServices for the model; making, changing and deleting
a compute takes ``create``, ``patch`` and ``delete`` of Workers. Power actions change the Worker (``patch``), those that
scale change the pool. The service's own actions and attributes take what the aggregated API asks for: ``create`` of
``workers/actions/NAME`` and ``update`` of ``workers/attributes/NAME`` in ``subresources.simyard.dev``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from simyard.api.names import (
    GROUP,
    OCCI_LINKS,
    OCCI_MIXINS,
    SIMULATION_SERVICES,
    SUBRESOURCES_GROUP,
    WORKER_POOLS,
    WORKERS,
)
from simyard.apiserver.authorization import Authorizer
from simyard.apiserver.routes import Call
from simyard.apiserver.status import StatusError
from simyard.frontend.backend import Verb
from simyard.frontend.computes import AMQPLINKS, COMPUTES
from simyard.frontend.exchange import Identity
from simyard.frontend.links import OTHER_LINKS
from simyard.frontend.services import APPLICATIONS, COMPONENTLINKS, COMPONENTS
from simyard.frontend.targets import DISCOVERY, DISCOVERY_PATH
from simyard.frontend.view import View, split
from simyard.occi.definitions import is_users_action
from simyard.occi.errors import OcciError
from simyard.occi.model import Mixin
from simyard.occi.standard import COMPUTE_ACTION_SCHEME
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.resource import Resource

_VERBS = {
    Verb.GET: "get",
    Verb.LIST: "list",
    Verb.CREATE: "create",
    Verb.UPDATE: "patch",
    Verb.DELETE: "delete",
    Verb.ACT: "patch",
}
PLAIN_SECONDS = 1.0
"""How long the answer to a plain question is used without asking the authorizer, which keeps it for ten seconds."""
MOST_PLAIN = 10_000
_MADE = (COMPUTES, AMQPLINKS)
_RESOURCES = {APPLICATIONS: SIMULATION_SERVICES, COMPONENTS: WORKER_POOLS, COMPONENTLINKS: WORKER_POOLS}


@dataclass(frozen=True, slots=True)
class Question:
    """May somebody do this? ``name`` is that of one object, ``subresource`` the words after it."""

    verb: str
    resource: Resource
    name: str = ""
    subresource: tuple[str, ...] = ()


_PLAIN = {
    (Verb.GET, COMPUTES): Question("get", WORKERS),
    (Verb.LIST, COMPUTES): Question("list", WORKERS),
    (Verb.LIST, DISCOVERY_PATH): Question("list", SIMULATION_SERVICES),
}
"""The questions that nothing but verb and location decides: those of nearly all requests."""


class Access:
    """Asks kube-apiserver, and remembers for some seconds."""

    def __init__(self, client: KubeClient, view: View, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._authorizer = Authorizer(client)
        self._view = view
        self._clock = clock
        self._plain: dict[tuple[Identity, Verb, str], float] = {}

    async def may(self, identity: Identity, verb: Verb, path: str, action: str = "") -> None:
        """See :class:`simyard.frontend.backend.Backend`."""
        location = path[: path.rfind("/") + 1]
        if verb is Verb.CREATE and location not in _MADE and path not in DISCOVERY:
            return  # nobody can make one: that is what is to be said, whoever asks
        if self._plain.get((identity, verb, location), 0.0) > self._clock():
            return
        if verb is Verb.LIST and path == AMQPLINKS and len(self._view.links):  # beside the Workers' own, clients' links
            await self.check(identity, Question("list", OCCI_LINKS))
        plain = _PLAIN.get((verb, location))
        if plain is None or not await self._allowed(identity, plain, ""):
            await self.check(identity, self.question(verb, path, action))
            return
        if len(self._plain) >= MOST_PLAIN:
            self._plain.clear()
        self._plain[identity, verb, location] = self._clock() + PLAIN_SECONDS

    async def check(self, identity: Identity, question: Question) -> None:
        """Return if somebody may do it: to all objects of the resource, or else to that one.

        Most may or may not do it to all of them, so one answer serves for thousands of entities.

        Raises:
            OcciError: 403, or 503 if it cannot be found out now.
        """
        for name in dict.fromkeys(("", question.name)):
            if await self._allowed(identity, question, name):
                return
        group = SUBRESOURCES_GROUP if question.subresource else GROUP
        what = "/".join((f"{question.resource.plural}.{group}", *question.subresource))
        one = f" {question.name}" if question.name else ""
        namespace = self._view.namespace
        raise OcciError(403, f'user "{identity.user}" may not {question.verb} {what}{one} in namespace {namespace}')

    async def _allowed(self, identity: Identity, question: Question, name: str) -> bool:
        group = SUBRESOURCES_GROUP if question.subresource else GROUP
        call = Call(question.verb, self._view.namespace, question.resource, name, question.subresource, group)
        try:
            await self._authorizer.check(identity, call)
        except StatusError as error:
            if error.code != 403:
                raise OcciError(error.code, error.message) from None
            return False
        return True

    def question(self, verb: Verb, path: str, action: str = "") -> Question:
        """What Kubernetes is asked for something that is wanted over OCCI."""
        if path in DISCOVERY:
            return Question(_VERBS[verb], SIMULATION_SERVICES if verb in (Verb.GET, Verb.LIST) else OCCI_MIXINS)
        if verb is Verb.ACT:
            return self._of_action(path, action)
        location, entity_id = split(path)
        if not entity_id and isinstance(self._view.model.at(location), Mixin):
            return Question(_VERBS[verb], OCCI_MIXINS)
        if (worker := self._view.worker(path)) is not None:
            # What a change takes depends on what it changes: it is asked when that is known.
            return Question("get" if verb is Verb.UPDATE else _VERBS[verb], WORKERS, worker.metadata.name)
        if location == OTHER_LINKS or (location == AMQPLINKS and (entity_id or verb not in (Verb.GET, Verb.LIST))):
            link = self._view.link(path)
            return Question(_VERBS[verb], OCCI_LINKS, link.metadata.name if link is not None else "")
        if location == COMPUTES and verb is Verb.UPDATE:
            return Question("get", WORKERS)
        resource = _RESOURCES.get(location, WORKERS)
        named = self._view.service(path) or self._view.pool(path)
        return Question(_VERBS[verb], resource, named.metadata.name if named is not None else "")

    def _of_action(self, path: str, action: str) -> Question:
        worker = self._view.worker(path)
        name = worker.metadata.name if worker is not None else ""
        if (declared := self._view.catalogue.declared_action(action)) is not None:
            return Question("create", WORKERS, name, ("actions", declared[1]))
        if action.startswith(COMPUTE_ACTION_SCHEME):
            return Question("patch", WORKERS, name)
        if self._view.model.action(action) is not None and is_users_action(action, self._view.model):
            link = self._view.link(path)
            return Question("patch", OCCI_LINKS, link.metadata.name if link is not None else "")
        pool = self._view.pool(path)
        return Question("patch", WORKER_POOLS, pool.metadata.name if pool is not None else "")
