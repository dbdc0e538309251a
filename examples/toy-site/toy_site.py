# SPDX-License-Identifier: Apache-2.0
"""The provider ``toy``: an example of a provider in a package of its own."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import toy_cloud

from simyard_sites.base import (
    Changed,
    ConflictError,
    ErrorScope,
    Gone,
    InternalError,
    InvalidSpecError,
    Machine,
    MachineNotFoundError,
    MachineRequest,
    MachineState,
    Outcome,
    Owner,
    PermissionDeniedError,
    PowerAction,
    QuotaExhaustedError,
    SiteConfig,
    SiteError,
    SiteEvent,
    SiteInfo,
    Snapshot,
    Stage,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
    UnknownOutcomeError,
)

CLOUDS: dict[str, toy_cloud.Cloud] = {}
DEADLINE_SECONDS = 30.0
WATCH_SECONDS = 10.0
FIELD = "spec.provider.other"
ERRORS: dict[int, type[SiteError]] = {
    401: UnauthenticatedError,
    403: PermissionDeniedError,
    404: MachineNotFoundError,
    409: ConflictError,
    422: InvalidSpecError,
    429: ThrottledError,
    507: QuotaExhaustedError,
}
STATES = {
    "pending": MachineState.PENDING,
    "running": MachineState.RUNNING,
    "stopped": MachineState.STOPPED,
    "failed": MachineState.FAILED,
    "ending": MachineState.TERMINATING,
}
STAGES = {"pending": Stage.PENDING, "running": Stage.RUNNING}


class ToySite:
    """A site of machines in a toy cloud."""

    def __init__(self, config: SiteConfig) -> None:
        name = config.provider["settings"].get("cloud", "")
        if name not in CLOUDS:
            message = f"{FIELD}.settings.cloud: the cloud {name!r} does not exist; the clouds are: {', '.join(CLOUDS)}"
            raise InvalidSpecError(message, scope=ErrorScope.SITE)
        self._cloud = CLOUDS[name]
        self._token = config.credentials.get("token", "")
        self._owner = f"{config.installation}/{config.name}"  # Several CloudSites may share a cloud.

    async def probe(self) -> SiteInfo:
        return SiteInfo(f"toy {await self._ask('version')}")

    def create(self, requests: Sequence[MachineRequest]) -> AsyncIterator[Outcome]:
        by_name = {request.name: request for request in requests}
        return self._each(list(by_name), lambda name: self._create(by_name[name]))

    def delete(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        return self._each(ids, self._delete)

    def get(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        return self._each(ids, self._get)

    def act(self, ids: Sequence[str], action: PowerAction) -> AsyncIterator[Outcome]:
        return self._each(ids, lambda machine_id: self._act(machine_id, action))

    async def list_owned(self) -> Sequence[Machine]:
        _, found = await self._ask("machines_of", self._owner)
        return [to_machine(machine) for machine in found]

    async def events(self) -> AsyncGenerator[SiteEvent, None]:
        since = -1
        while True:
            if since < 0:
                since, found = await self._ask("machines_of", self._owner)
                yield Snapshot([to_machine(machine) for machine in found])
            try:
                since, news = await self._ask("changes", self._owner, since, WATCH_SECONDS)
            except ForgottenError:
                since, news = -1, []
            for machine in news:
                is_gone = machine["state"] == "gone"
                yield Gone(machine["id"], machine["name"]) if is_gone else Changed(to_machine(machine))

    async def clear(self) -> None:
        """Do nothing: the site stores only machines."""

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""

    async def _create(self, request: MachineRequest) -> Machine | None:
        owner = request.owner
        labels = {
            "site": self._owner,
            "namespace": owner.namespace,
            "worker": owner.worker,
            "uid": owner.worker_uid,
            "pool": owner.pool,
        }
        try:
            made = await self._ask("create", request.name, labels, request.bootstrap, request.memory_mib)
        except ConflictError as error:  # The machine exists already, or belongs to another owner.
            for machine in await self.list_owned():
                if machine.name == request.name and machine.owner == owner:
                    return machine
            raise InvalidSpecError(
                f"{error}, but it belongs to another owner: delete it", scope=ErrorScope.ITEM
            ) from error
        return to_machine(made)

    async def _delete(self, machine_id: str) -> None:
        with contextlib.suppress(MachineNotFoundError):
            await self._get(machine_id)
            await self._ask("delete", machine_id)

    async def _get(self, machine_id: str) -> Machine:
        found = await self._ask("get", machine_id)
        if found["labels"]["site"] != self._owner:
            raise MachineNotFoundError(f"the machine {machine_id} does not belong to this CloudSite")
        return to_machine(found)

    async def _act(self, machine_id: str, action: PowerAction) -> Machine:
        if action is PowerAction.SUSPEND:
            raise InvalidSpecError(
                "a toy cloud cannot suspend machines: stop the worker instead", scope=ErrorScope.ITEM
            )
        await self._get(machine_id)
        state = "stopped" if action is PowerAction.STOP else "running"
        return to_machine(await self._ask("power", machine_id, state))

    async def _each(
        self, keys: Sequence[str], do: Callable[[str], Awaitable[Machine | None]]
    ) -> AsyncGenerator[Outcome, None]:
        """Make the calls one after the other: the platform makes as many calls in parallel as the site accepts."""
        for key in keys:
            try:
                outcome = Outcome(key, await do(key))
            except SiteError as error:
                if error.scope is ErrorScope.SITE:
                    raise  # The error counts for all remaining items.
                outcome = Outcome(key, error=error)
            yield outcome

    async def _ask(self, verb: str, *arguments: Any) -> Any:
        """Make one request with a deadline; turn failures into errors of the site interface."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await self._cloud.request(self._token, verb, *arguments)
        except toy_cloud.RefusedError as refused:
            if refused.status == 410:
                raise ForgottenError from refused
            where = f"{FIELD}.credentialsSecretRef: " if refused.status in (401, 403) else ""
            kind = ERRORS.get(refused.status, InternalError)
            raise kind(f"{where}{refused}", retry_after_seconds=refused.retry_after) from refused
        except ConnectionRefusedError as error:
            raise UnavailableError(f"{FIELD}.settings.cloud: {error}") from error
        except (ConnectionError, TimeoutError) as error:
            kind = UnknownOutcomeError if verb in ("create", "delete", "power") else UnavailableError
            raise kind(f"no answer to {verb}: {error}") from error


class ForgottenError(Exception):
    """The error of a cloud that has dropped the log entries since the last request."""


def to_machine(found: dict[str, Any]) -> Machine:
    """Return the machine of the cloud's description."""
    labels = found["labels"]
    return Machine(
        id=found["id"],
        name=found["name"],
        owner=Owner(labels["namespace"], labels["worker"], labels["uid"], labels["pool"]),
        state=STATES[found["state"]],
        entered={STAGES[state]: at for state, at in found["times"].items() if state in STAGES},
        reason="Broken" if found["state"] == "failed" else "",
    )
