"""The provider ``toy``."""

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
    """Machines of a toy cloud."""

    def __init__(self, config: SiteConfig) -> None:
        name = config.provider["settings"].get("cloud", "")
        if name not in CLOUDS:
            message = f"{FIELD}.settings.cloud: there is no cloud {name!r}; there are: {', '.join(CLOUDS)}"
            raise InvalidSpecError(message, scope=ErrorScope.SITE)
        self._cloud = CLOUDS[name]
        self._token = config.credentials.get("token", "")
        self._owner = f"{config.installation}/{config.name}"  # several CloudSites may share a cloud

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
        """Nothing is kept there but machines."""

    async def aclose(self) -> None:
        """There is no connection to close."""

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
        except ConflictError as error:  # it is there already, or somebody else has one of that name
            for machine in await self.list_owned():
                if machine.name == request.name and machine.owner == owner:
                    return machine
            raise InvalidSpecError(f"{error}, and it is not of this worker", scope=ErrorScope.ITEM) from error
        return to_machine(made)

    async def _delete(self, machine_id: str) -> None:
        with contextlib.suppress(MachineNotFoundError):
            await self._get(machine_id)
            await self._ask("delete", machine_id)

    async def _get(self, machine_id: str) -> Machine:
        found = await self._ask("get", machine_id)
        if found["labels"]["site"] != self._owner:
            raise MachineNotFoundError(f"the machine {machine_id} is none of ours")
        return to_machine(found)

    async def _act(self, machine_id: str, action: PowerAction) -> Machine:
        if action is PowerAction.SUSPEND:
            raise InvalidSpecError("a toy cloud cannot suspend machines: stop them", scope=ErrorScope.ITEM)
        await self._get(machine_id)
        state = "stopped" if action is PowerAction.STOP else "running"
        return to_machine(await self._ask("power", machine_id, state))

    async def _each(
        self, keys: Sequence[str], do: Callable[[str], Awaitable[Machine | None]]
    ) -> AsyncGenerator[Outcome, None]:
        """One after the other: calls come beside each other, as many as the site bears."""
        for key in keys:
            try:
                outcome = Outcome(key, await do(key))
            except SiteError as error:
                if error.scope is ErrorScope.SITE:
                    raise  # for all that are left
                outcome = Outcome(key, error=error)
            yield outcome

    async def _ask(self, verb: str, *arguments: Any) -> Any:
        """One request, with a deadline; what goes wrong becomes the error that says what to do."""
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
    """The cloud does not know any more what has changed since."""


def to_machine(found: dict[str, Any]) -> Machine:
    """A machine as the cloud describes it."""
    labels = found["labels"]
    return Machine(
        id=found["id"],
        name=found["name"],
        owner=Owner(labels["namespace"], labels["worker"], labels["uid"], labels["pool"]),
        state=STATES[found["state"]],
        entered={STAGES[state]: at for state, at in found["times"].items() if state in STAGES},
        reason="Broken" if found["state"] == "failed" else "",
    )
