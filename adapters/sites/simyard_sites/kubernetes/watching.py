"""The machines of a site as the API server tells of them: a list, then a watch from its version."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing

from simyard_sites.base import Changed, Gone, Machine, SiteEvent, Snapshot
from simyard_sites.kubernetes.client import Json, KubeClient
from simyard_sites.kubernetes.errors import ApiError, ExpiredError, UnavailableError
from simyard_sites.kubernetes.refusals import site_error
from simyard_sites.kubernetes.resource import Resource


class Seen:
    """What was seen of each machine: what the streams of events told last, so that no answer takes anybody back behind
    it; and the uid of its object, so that nothing is done to another one."""

    def __init__(self) -> None:
        self._machines: dict[str, tuple[int, Machine]] = {}
        self._uids: dict[str, str] = {}

    def note(self, machine_id: str, uid: str) -> None:
        """The object of a machine was seen."""
        self._uids[machine_id] = uid

    def uid(self, machine_id: str) -> str | None:
        """The uid of a machine's object, as it was seen last."""
        return self._uids.get(machine_id)

    def forget(self, machine_id: str) -> None:
        """The object of that id is gone, or is another one."""
        self._uids.pop(machine_id, None)

    def newest(self, item: Json, machine: Machine) -> Machine:
        """The machine as an answer has it (``item``), or as a stream told meanwhile."""
        seen = self._machines.get(machine.id)
        return seen[1] if seen is not None and seen[0] > _version(item) else machine

    def put(self, item: Json, machine: Machine) -> None:
        """A change is told."""
        self._machines[machine.id] = (_version(item), machine)

    def remove(self, machine: Machine) -> None:
        """It is told that a machine is gone."""
        self._machines.pop(machine.id, None)
        self.forget(machine.id)

    def keep(self, machine_ids: Iterable[str]) -> None:
        """A snapshot is told: what is not in it is gone."""
        kept = set(machine_ids)
        self._machines = {key: seen for key, seen in self._machines.items() if key in kept}
        self._uids = {key: uid for key, uid in self._uids.items() if key in kept}


Read = Callable[[Json], Machine | None]
"""Makes a machine from an object; None: it is not one of ours."""


async def listed(
    client: KubeClient, resource: Resource, read: Read, *, namespace: str, labels: str
) -> tuple[list[Machine], str]:
    """The machines that are there, and the version of the list. Only what ``read`` makes of an object is kept.

    Raises:
        SiteError: the API server refuses, or does not answer.
    """
    machines: list[Machine] = []

    def take(page: list[Json]) -> None:
        machines.extend(machine for item in page if (machine := read(item)) is not None)

    try:
        _, version = await client.list_all(resource, namespace, labels=labels, take=take)
    except ApiError as error:
        raise site_error(error) from error
    return machines, version


async def follow(
    client: KubeClient, resource: Resource, read: Read, *, namespace: str, labels: str, seen: Seen | None = None
) -> AsyncGenerator[SiteEvent | None, None]:
    """A :class:`Snapshot`, then what changes; None about every minute in which nothing does (a bookmark).

    What changes in an object and not in its machine is not told. A watch that breaks after it told something goes on
    from there; one whose version is too old begins with a snapshot again. ``seen`` is kept up to date.

    Raises:
        SiteError: the API server refuses, or does not answer.
    """
    seen = seen or Seen()
    while True:
        machines, version = await listed(client, resource, read, namespace=namespace, labels=labels)
        known = {machine.id: machine for machine in machines}
        seen.keep(known)
        yield Snapshot(machines)
        del machines
        fresh = True
        while fresh:
            fresh = False
            try:
                changes = client.watch(resource, namespace, resource_version=version, labels=labels)
                async with aclosing(changes):
                    async for event in changes:
                        fresh = True
                        version = event.object["metadata"]["resourceVersion"]
                        if event.type == "BOOKMARK":
                            yield None
                        elif (machine := read(event.object)) is None:
                            continue
                        elif event.type == "DELETED":
                            known.pop(machine.id, None)
                            seen.remove(machine)
                            yield Gone(machine.id, machine.name)
                        elif known.get(machine.id) != machine:
                            known[machine.id] = machine
                            seen.put(event.object, machine)
                            yield Changed(machine)
                fresh = True
            except ExpiredError:
                break
            except UnavailableError as error:
                if not fresh:
                    raise site_error(error) from error
            except ApiError as error:
                raise site_error(error) from error


def _version(item: Json) -> int:
    """Kubernetes promises that versions of one resource can be compared as numbers (KEP-5504)."""
    return int(item["metadata"]["resourceVersion"])
