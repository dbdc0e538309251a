# SPDX-License-Identifier: Apache-2.0
"""Carries out actions on computes, applications, components and the services in computes (POST ``?action=``)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Protocol

from simyard.api.base import Json, find_condition
from simyard.api.names import SERVICE_ACTIONS, ConditionType
from simyard.api.service_action import ServiceAction
from simyard.frontend.amqp.registration_waits import RegistrationWaits
from simyard.frontend.backend import Invocation
from simyard.frontend.changes.scaling import Scaling
from simyard.frontend.changes.storing import ObjectStore, add_check, for_each, translate_api_errors
from simyard.frontend.entities.catalogue import SCALE, START_WORKERS
from simyard.frontend.entities.computes import QUEUE, ComputeState, compute_state
from simyard.frontend.entities.file_links import FILES_LOCATION, parse_files, render_files
from simyard.frontend.entities.view import View
from simyard.occi.conflicts import ConflictCause, OcciConflictError
from simyard.occi.errors import OcciError
from simyard.occi.model import Entity, Value
from simyard.occi.standard import APPLICATION_ACTION_SCHEME, COMPONENT_ACTION_SCHEME, COMPUTE_ACTION_SCHEME
from simyard.serving.actions import Actions
from simyard.serving.objects import CachedPool, CachedService, CachedWorker
from simyard_adapter.declarations import ActionMode
from simyard_sites.base import MachineState
from simyard_sites.kubernetes.client import KubeClient

SERVICE_ACTION = "org.simyard.serviceaction"
"""Attribute in the result of an Async action: the name of the ServiceAction that keeps the result."""
RESULT_FILE = "org.simyard.resultfile"
"""Attribute in the result of an action: the path of the JSON file with the fields that are in the file store."""
MAX_PARALLEL_ACTIONS = 200
_POWER = {
    "start": ("Running", ComputeState.ACTIVE),
    "stop": ("Stopped", ComputeState.INACTIVE),
    "suspend": ("Suspended", ComputeState.SUSPENDED),
}


class ActionForwarder(Protocol):
    """The connection to foreign service adapters, which serve links that clients made."""

    async def invoke(self, queue: str, path: str, invocation: Invocation) -> Mapping[str, Value] | None:
        """Forward an action to the queue of the link at ``path``, and return its result if the client waits for it.

        Raises:
            OcciError: the action could not be forwarded, or it failed.
        """


class EntityActions:
    """An executor of actions on entities. Its caller has checked the rights, and that the action applies."""

    def __init__(
        self,
        client: KubeClient,
        view: View,
        store: ObjectStore,
        scaling: Scaling,
        actions: Actions,
        foreign: ActionForwarder | None,
        registration_waits: RegistrationWaits,
    ) -> None:
        self._registration_waits = registration_waits
        self._client = client
        self._view = view
        self._store = store
        self._scaling = scaling
        self._actions = actions
        self._foreign = foreign

    async def act(self, entities: Sequence[Entity], invocation: Invocation) -> Mapping[str, Value] | None:
        """Carry out an action on every entity. For a single entity, return the result; None if there is none.

        Raises:
            OcciError: the first failure, after every entity was tried.
        """
        results: list[Mapping[str, Value] | None] = []

        async def act_on(entity: Entity) -> None:
            results.append(await self._act(entity, invocation.select_entity(entity.path)))

        await for_each(entities, act_on, MAX_PARALLEL_ACTIONS)
        return results[0] if len(entities) == 1 else None

    async def _act(self, entity: Entity, invocation: Invocation) -> Mapping[str, Value] | None:
        """Carry out an action on one entity: on its machine, its pools or its service, by the scheme of the action."""
        path, action = entity.path, invocation.action
        if (declared := self._view.catalogue.find_declared_action(action.id)) is not None:
            await self._check_stored(path, invocation)
            return await self._invoke_service(self._worker(path), declared[1], invocation)
        if action.scheme == COMPUTE_ACTION_SCHEME:
            await self._change_power(self._worker(path), invocation)
        elif action.scheme in (APPLICATION_ACTION_SCHEME, COMPONENT_ACTION_SCHEME):
            await self._suspend_pools(self._pools(path), invocation)
        elif action.id == SCALE.id:
            await self._scale(path, invocation)
        elif action.term == START_WORKERS and (service := self._view.find_service(path)) is not None:
            await self._start_workers(service, invocation)
        else:
            await self._check_stored(path, invocation)
            return await self._forward(entity, invocation)
        return None

    async def _check_stored(self, path: str, invocation: Invocation) -> None:
        """Read an entity from the API server and check the conditions of the request on it.

        An action of a service makes no write that could contain the check.

        Raises:
            OcciError: the check failed.
        """
        if invocation.check is None:
            return
        if (worker := self._view.find_worker(path)) is not None:
            await self._store.refresh(self._view.directory.workers, worker)
        elif (link := self._view.link(path)) is not None:
            await self._store.refresh(self._view.links, link)
        invocation.check()

    def _worker(self, path: str) -> CachedWorker:
        worker = self._view.find_worker(path)
        if worker is None:
            raise OcciError(404, f"{path} has been deleted meanwhile")
        return worker

    def _pools(self, path: str) -> list[CachedPool]:
        if (service := self._view.find_service(path)) is not None:
            return self._view.list_pools(service)
        pool = self._view.find_pool(path)
        return [pool] if pool is not None else []

    async def _change_power(self, worker: CachedWorker, invocation: Invocation) -> None:
        """Write the desired power state into the Worker.

        The operator then changes the machine. If the site does not answer, the operator tries again later.
        """
        term, wait = invocation.action.term, invocation.wait
        if term == "restart":
            with self._registration_waits.watch(worker) as has_registered:
                wanted, is_under_way = await self._restart(worker, invocation)

                def is_back(now: CachedWorker) -> bool:
                    return now.restarted >= wanted and now.state.good and (has_registered() or not is_under_way)

                if wait:
                    await self._wait_until(worker, term, is_back)
            return
        if term not in _POWER:
            raise OcciError(501, f"{term}: no site supports this action on a machine")
        power_state, state = _POWER[term]
        change: Json = {"spec": {"powerState": power_state}}
        checked = add_check(invocation.check, lambda _: change)
        await self._store.change(self._view.directory.workers, worker, checked, invocation.key)
        if wait:
            # A machine that is stopping already counts as inactive, long before it has stopped.
            is_done = _has_stopped if term == "stop" else lambda now: compute_state(now) is state
            await self._wait_until(worker, term, is_done)

    async def _restart(self, worker: CachedWorker, invocation: Invocation) -> tuple[int, bool]:
        """Request a restart; return the number of requested restarts, and true if the last restart is not done yet.

        If two clients request a restart at the same moment, the machine restarts once.
        """
        workers, metadata = self._view.directory.workers, worker.metadata
        # In a stale copy, the last restart would look like a restart that another client requests at this moment.
        found = await self._store.get(workers, metadata.name, metadata.namespace)
        if found is None or found.metadata.uid != metadata.uid:
            raise OcciError(404, f"{metadata.name} has been deleted meanwhile")
        wanted = found.restarts + 1

        def restarted(now: CachedWorker) -> Json:
            return {"spec": {"restarts": max(now.restarts, wanted)}}

        changed = await self._store.change(workers, found, add_check(invocation.check, restarted), invocation.key)
        return changed.restarts, changed.restarts > changed.restarted

    async def _wait_until(self, worker: CachedWorker, term: str, check: Callable[[CachedWorker], bool]) -> None:
        namespace, name = worker.metadata.namespace, worker.metadata.name

        def now() -> CachedWorker | None:
            found = self._view.directory.workers.get(namespace, name)
            return found if found is not None and found.metadata.uid == worker.metadata.uid else None

        def is_done() -> bool:
            found = now()
            return found is None or check(found)

        if not await self._view.wait_until(is_done, self._scaling.wait_seconds):
            found = now()
            state = found.state if found is not None else "gone"
            raise OcciError(
                504,
                f"{name}: {term} was requested, but is not done after {self._scaling.wait_seconds:.0f} s ({state});"
                " it goes on",
            )

    async def _suspend_pools(self, pools: Sequence[CachedPool], invocation: Invocation) -> None:
        suspended, wait = invocation.action.term == "stop", invocation.wait
        changed: list[CachedPool] = []
        for pool in pools:
            check = None if changed else invocation.check  # the first change may change the entity
            changed.append(await self._scaling.suspend(pool, suspended, invocation.key, check))
        if wait and suspended:
            await for_each(changed, self._scaling.wait_stopped, MAX_PARALLEL_ACTIONS)
        elif wait:
            resumed = [pool for before, pool in zip(pools, changed, strict=True) if before.suspended]
            await for_each(resumed, self._scaling.wait_ready, MAX_PARALLEL_ACTIONS)

    async def _start_workers(self, service: CachedService, invocation: Invocation) -> None:
        count = int(str(invocation.attributes["n"]))
        pool = await self._scaling.start_workers(invocation.identity, service, count, invocation.key, invocation.check)
        if _waits_for_workers(invocation):
            await self._scaling.wait_ready(pool)

    async def _scale(self, path: str, invocation: Invocation) -> None:
        pools = self._pools(path)
        if len(pools) != 1:
            raise OcciConflictError(
                ConflictCause.AMBIGUOUS_COMPONENT,
                f"{path}: the service has {len(pools)} components; scale one of them, or use {START_WORKERS}",
            )
        replicas = int(str(invocation.attributes["replicas"]))
        pool = await self._scaling.scale(pools[0], replicas, invocation.key, invocation.check)
        if _waits_for_workers(invocation):
            await self._scaling.wait_ready(pool)

    async def _invoke_service(
        self, worker: CachedWorker, name: str, invocation: Invocation
    ) -> Mapping[str, Value] | None:
        """Invoke an action that a service declares, and return its result if the client waits for it.

        For a Sync action, the method returns the result. For an Async action, or if the client does not wait, it
        creates a ServiceAction and returns its name.
        """
        service = self._view.get_service(worker.service)
        if service is None:
            raise OcciConflictError(
                ConflictCause.SERVICE_GONE,
                f"{worker.metadata.name}: its SimulationService {worker.service} does not exist any more",
            )
        declared = service.interface.find_action(name)
        is_sync = declared is not None and declared.mode is ActionMode.SYNC and invocation.wait is not False
        given = parse_files(invocation.attributes, declared.parameters if declared is not None else ())
        code, answer = await self._actions.invoke(
            worker, service, name, given, invocation.identity.user, wait=is_sync, key=invocation.key
        )
        if code == 200:
            return render_files(answer.get("result") or {}, declared.result if declared is not None else ())
        recorded = ServiceAction.model_validate(answer)
        if invocation.wait:
            return render_files(await self._wait_finished(recorded), declared.result if declared is not None else ())
        return {SERVICE_ACTION: recorded.metadata.name}

    async def _wait_finished(self, action: ServiceAction) -> Mapping[str, Value]:
        """Wait until a ServiceAction has finished, and return its result."""
        metadata = action.metadata
        async with translate_api_errors(
            f"ServiceAction {metadata.name} (it will have the result)", self._scaling.wait_seconds
        ):
            while (found := read_finished(action)) is None:
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
                        if read_finished(action) is not None:
                            break
                finally:
                    if isinstance(events, AsyncGenerator):
                        await events.aclose()
            return found

    async def _forward(self, entity: Entity, invocation: Invocation) -> Mapping[str, Value] | None:
        queue = entity.attributes.get(QUEUE)
        if self._foreign is None or not isinstance(queue, str):
            raise OcciError(
                501,
                f"{entity.path}: {invocation.action.term} is an action of a foreign service adapter; this frontend "
                "serves none",
            )
        return await self._foreign.invoke(queue, entity.path, invocation)


def _waits_for_workers(invocation: Invocation) -> bool:
    """Return true if the client waits until the workers are ready: by ``wait`` of the request, else of the action."""
    return bool(invocation.wait) or invocation.attributes.get("wait") is True


def _has_stopped(worker: CachedWorker) -> bool:
    return worker.machine_state == MachineState.STOPPED


def read_finished(action: ServiceAction) -> Mapping[str, Value] | None:
    """Return the result of a ServiceAction that has finished; None if it has not finished yet.

    Raises:
        OcciError: 400, the action has failed.
    """
    conditions = action.status.conditions
    failed = find_condition(conditions, ConditionType.FAILED)
    if failed is not None and failed.status == "True":
        raise OcciError(400, f"the action has failed: {failed.reason}: {failed.message}")
    complete = find_condition(conditions, ConditionType.COMPLETE)
    if complete is None or complete.status != "True":
        return None
    result = action.status.result if isinstance(action.status.result, dict) else {}
    stored = action.status.result_file
    link: Mapping[str, Value] = {RESULT_FILE: FILES_LOCATION + stored.file} if stored is not None else {}
    return {**{key: value for key, value in result.items() if value is not None}, **link}
