"""POST ?action=: what is done to computes, applications, components and the services in computes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Protocol

from simyard.api.base import Json, find_condition
from simyard.api.names import SERVICE_ACTIONS, ConditionType
from simyard.api.service_action import ServiceAction
from simyard.apiserver.actions import Actions
from simyard.apiserver.objects import CachedPool, CachedWorker
from simyard.frontend.catalogue import SCALE, START_WORKERS
from simyard.frontend.computes import QUEUE, ComputeState, state_of
from simyard.frontend.exchange import Identity
from simyard.frontend.identifiers import digest
from simyard.frontend.registered import Registrations
from simyard.frontend.scaling import WAIT_SECONDS, Scaling
from simyard.frontend.storing import Storing, answered, each
from simyard.frontend.view import View
from simyard.occi.errors import OcciError
from simyard.occi.model import Action, Entity, Value
from simyard.occi.standard import APPLICATION_ACTION_SCHEME, COMPONENT_ACTION_SCHEME, COMPUTE_ACTION_SCHEME
from simyard_adapter.declarations import ActionMode
from simyard_sites.base import MachineState
from simyard_sites.kubernetes.client import KubeClient

SERVICE_ACTION = "org.simyard.serviceaction"
"""In the result of an Async action: the name of the ServiceAction that keeps it."""
AT_ONCE = 200
_POWER = {
    "start": ("Running", ComputeState.ACTIVE),
    "stop": ("Stopped", ComputeState.INACTIVE),
    "suspend": ("Suspended", ComputeState.SUSPENDED),
}


class Foreign(Protocol):
    """The service adapters of others, which links that clients made lead to."""

    async def invoke(
        self, queue: str, path: str, action: Action, attributes: Mapping[str, Value], *, wait: bool, key: str = ""
    ) -> Mapping[str, Value] | None:
        """Forward an action to the queue of a link; OcciError when that fails."""


class Invocations:
    """Carries out actions. Who may was asked before, and the action applies."""

    def __init__(
        self,
        client: KubeClient,
        view: View,
        storing: Storing,
        scaling: Scaling,
        actions: Actions,
        foreign: Foreign | None,
        registrations: Registrations,
    ) -> None:
        self._registrations = registrations
        self._client = client
        self._view = view
        self._storing = storing
        self._scaling = scaling
        self._actions = actions
        self._foreign = foreign

    async def act(
        self,
        identity: Identity,
        entities: Sequence[Entity],
        action: Action,
        attributes: Mapping[str, Value],
        *,
        wait: bool | None,
        key: str = "",
    ) -> Mapping[str, Value] | None:
        """See :class:`simyard.frontend.backend.Backend`. The result is given of a single entity only.

        Of several entities every one is tried, and the first failure is told.
        """
        results: list[Mapping[str, Value] | None] = []

        async def act_on(entity: Entity) -> None:
            one = digest(f"{key} {entity.path}") if key else ""
            results.append(await self._act(identity, entity, action, attributes, wait=wait, key=one))

        await each(entities, act_on, AT_ONCE)
        return results[0] if len(entities) == 1 else None

    async def _act(
        self,
        identity: Identity,
        entity: Entity,
        action: Action,
        attributes: Mapping[str, Value],
        *,
        wait: bool | None,
        key: str,
    ) -> Mapping[str, Value] | None:
        path = entity.path
        if (declared := self._view.catalogue.declared_action(action.id)) is not None:
            return await self._service_action(identity, self._worker(path), declared[1], attributes, wait=wait, key=key)
        if action.scheme == COMPUTE_ACTION_SCHEME:
            await self._power(self._worker(path), action.term, wait=bool(wait), key=key)
            return None
        if action.scheme in (APPLICATION_ACTION_SCHEME, COMPONENT_ACTION_SCHEME):
            await self._suspend(self._pools(path), action.term == "stop", wait=bool(wait), key=key)
            return None
        waits = bool(wait) or attributes.get("wait") is True
        if action.id == SCALE.id:
            await self._scale(path, int(str(attributes["replicas"])), wait=waits, key=key)
            return None
        if action.term == START_WORKERS and (service := self._view.service(path)) is not None:
            pool = await self._scaling.start_workers(identity, service, int(str(attributes["n"])), key)
            if waits:
                await self._scaling.ready(pool)
            return None
        return await self._forward(entity, action, attributes, wait=bool(wait), key=key)

    def _worker(self, path: str) -> CachedWorker:
        worker = self._view.worker(path)
        if worker is None:
            raise OcciError(404, f"{path} has been deleted meanwhile")
        return worker

    def _pools(self, path: str) -> list[CachedPool]:
        if (service := self._view.service(path)) is not None:
            return self._view.pools_of(service)
        pool = self._view.pool(path)
        return [pool] if pool is not None else []

    async def _power(self, worker: CachedWorker, term: str, *, wait: bool, key: str) -> None:
        """Say what the machine should do; the operator has its site do it, now or when the site is back."""
        if term == "restart":
            with self._registrations.awaited(worker) as has_registered:
                wanted, is_under_way = await self._restart(worker, key)

                def is_back(now: CachedWorker) -> bool:
                    return now.restarted >= wanted and now.state.good and (has_registered() or not is_under_way)

                if wait:
                    await self._until(worker, term, is_back)
            return
        if term not in _POWER:
            raise OcciError(501, f"{term}: no site can do that to a machine")
        power_state, state = _POWER[term]
        change: Json = {"spec": {"powerState": power_state}}
        await self._storing.change(self._view.directory.workers, worker, lambda _: change, key)
        if wait:
            # What is on its way is inactive too, long before it has stopped.
            is_done = _has_stopped if term == "stop" else lambda now: state_of(now) is state
            await self._until(worker, term, is_done)

    async def _restart(self, worker: CachedWorker, key: str) -> tuple[int, bool]:
        """Ask for one restart more; how many that makes, and whether the site has not accepted it yet.

        Two clients that ask at the same moment ask for the same one.
        """
        workers, metadata = self._view.directory.workers, worker.metadata
        # Whoever has not heard of the last restart would take it for one that is asked for at this moment.
        found = await self._storing.get(workers, metadata.name, metadata.namespace)
        if found is None or found.metadata.uid != metadata.uid:
            raise OcciError(404, f"{metadata.name} has been deleted meanwhile")
        wanted = found.restarts + 1
        changed = await self._storing.change(
            workers, found, lambda now: {"spec": {"restarts": max(now.restarts, wanted)}}, key
        )  # fmt: skip
        return changed.restarts, changed.restarts > changed.restarted

    async def _until(self, worker: CachedWorker, term: str, check: Callable[[CachedWorker], bool]) -> None:
        namespace, name = worker.metadata.namespace, worker.metadata.name

        def now() -> CachedWorker | None:
            found = self._view.directory.workers.get(namespace, name)
            return found if found is not None and found.metadata.uid == worker.metadata.uid else None

        def is_done() -> bool:
            found = now()
            return found is None or check(found)

        if not await self._view.until(is_done, WAIT_SECONDS):
            found = now()
            state = found.state if found is not None else "gone"
            raise OcciError(504, f"{name}: {term} is asked for, and not done after {WAIT_SECONDS:.0f} s ({state})")

    async def _suspend(self, pools: Sequence[CachedPool], suspended: bool, *, wait: bool, key: str) -> None:
        changed = [await self._scaling.suspend(pool, suspended, key) for pool in pools]
        if wait and suspended:
            await each(changed, self._scaling.stopped, AT_ONCE)
        elif wait:
            resumed = [pool for before, pool in zip(pools, changed, strict=True) if before.suspended]
            await each(resumed, self._scaling.ready, AT_ONCE)

    async def _scale(self, path: str, replicas: int, *, wait: bool, key: str) -> None:
        pools = self._pools(path)
        if len(pools) != 1:
            raise OcciError(409, f"{path}: has {len(pools)} components; scale one of them, or use {START_WORKERS}")
        pool = await self._scaling.scale(pools[0], replicas, key)
        if wait:
            await self._scaling.ready(pool)

    async def _service_action(
        self,
        identity: Identity,
        worker: CachedWorker,
        name: str,
        parameters: Mapping[str, Value],
        *,
        wait: bool | None,
        key: str,
    ) -> Mapping[str, Value] | None:
        """A Sync action answers with its result, unless the client says that it does not wait; then it is kept, as an
        Async one is, whose result is given if that is waited for.
        """
        service = self._view.service_of(worker.service)
        if service is None:
            raise OcciError(409, f"{worker.metadata.name}: its service is not published any more")
        declared = service.interface.action(name)
        is_sync = declared is not None and declared.mode is ActionMode.SYNC and wait is not False
        code, answer = await self._actions.invoke(
            worker, service, name, parameters, identity.user, wait=is_sync, key=key
        )  # fmt: skip
        if code == 200:
            return {key: value for key, value in (answer.get("result") or {}).items() if value is not None}
        recorded = ServiceAction.model_validate(answer)
        if wait:
            return await self._finished(recorded)
        return {SERVICE_ACTION: recorded.metadata.name}

    async def _finished(self, action: ServiceAction) -> Mapping[str, Value]:
        """Follow a ServiceAction until it has finished."""
        metadata = action.metadata
        async with answered(f"ServiceAction {metadata.name} (its result will stand there)", WAIT_SECONDS):
            while (found := _result(action)) is None:
                events = self._client.watch(
                    SERVICE_ACTIONS,
                    metadata.namespace,
                    resource_version=action.metadata.resource_version,
                    fields=f"metadata.name={metadata.name}",
                )
                try:
                    async for event in events:
                        if event.type == "DELETED":
                            raise OcciError(404, f"ServiceAction {metadata.name} has been deleted")
                        if event.type != "BOOKMARK":
                            action = ServiceAction.model_validate(event.object)
                        if _result(action) is not None:
                            break
                finally:
                    if isinstance(events, AsyncGenerator):
                        await events.aclose()
            return found

    async def _forward(
        self, entity: Entity, action: Action, attributes: Mapping[str, Value], *, wait: bool, key: str
    ) -> Mapping[str, Value] | None:
        queue = entity.attributes.get(QUEUE)
        if self._foreign is None or not isinstance(queue, str):
            raise OcciError(
                501, f"{entity.path}: {action.term} is for the service adapter of a link; none is served here"
            )
        return await self._foreign.invoke(queue, entity.path, action, attributes, wait=wait, key=key)


def _has_stopped(worker: CachedWorker) -> bool:
    return worker.machine_state == MachineState.STOPPED


def _result(action: ServiceAction) -> Mapping[str, Value] | None:
    """The result of an action that has finished, else None."""
    conditions = action.status.conditions
    failed = find_condition(conditions, ConditionType.FAILED)
    if failed is not None and failed.status == "True":
        raise OcciError(400, f"the action has failed: {failed.reason}: {failed.message}")
    complete = find_condition(conditions, ConditionType.COMPLETE)
    if complete is None or complete.status != "True":
        return None
    result = action.status.result
    return {key: value for key, value in result.items() if value is not None} if isinstance(result, dict) else {}
