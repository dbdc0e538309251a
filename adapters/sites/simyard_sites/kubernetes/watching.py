# SPDX-License-Identifier: Apache-2.0
"""Follows the machines of a site: a list, then a watch from its resource version."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing

from simyard_sites.base import Changed, Gone, Machine, SiteEvent, Snapshot
from simyard_sites.kubernetes.client import Json, KubeClient
from simyard_sites.kubernetes.errors import ApiError, ExpiredError, UnavailableError
from simyard_sites.kubernetes.refusals import make_site_error
from simyard_sites.kubernetes.resource import Resource


class Seen:
    """The last reported state of each machine, and the uid of its object.

    Because of the states, an answer never reports an older state than a stream has reported. Because of the uids, no
    call changes another object that has the name of the machine now.
    """

    def __init__(self) -> None:
        self._machines: dict[str, tuple[int, Machine]] = {}
        self._uids: dict[str, str] = {}

    def record_uid(self, machine_id: str, uid: str) -> None:
        """Record the uid of a machine's object."""
        self._uids[machine_id] = uid

    def get_uid(self, machine_id: str) -> str | None:
        """Return the last known uid of a machine's object, or None."""
        return self._uids.get(machine_id)

    def forget(self, machine_id: str) -> None:
        """Forget an object that is gone or was replaced."""
        self._uids.pop(machine_id, None)

    def choose_newest(self, item: Json, machine: Machine) -> Machine:
        """Return the newer state: the machine in an answer (``item``), or the machine that a stream reported."""
        seen = self._machines.get(machine.id)
        return seen[1] if seen is not None and seen[0] > _version(item) else machine

    def apply_change(self, item: Json, machine: Machine) -> None:
        """Record a change that a stream reports."""
        self._machines[machine.id] = (_version(item), machine)

    def remove(self, machine: Machine) -> None:
        """Record that a stream reports a machine as gone."""
        self._machines.pop(machine.id, None)
        self.forget(machine.id)

    def apply_snapshot(self, machine_ids: Iterable[str]) -> None:
        """Record that a stream reports a snapshot: forget all machines that are not in it."""
        kept = set(machine_ids)
        self._machines = {key: seen for key, seen in self._machines.items() if key in kept}
        self._uids = {key: uid for key, uid in self._uids.items() if key in kept}


Read = Callable[[Json], Machine | None]
"""A function that returns the machine of an object, or None if the object is not a machine of this site."""


async def list_machines(
    client: KubeClient, resource: Resource, read: Read, *, namespace: str, labels: str
) -> tuple[list[Machine], str]:
    """Return the present machines and the resource version of the list; only the results of ``read`` are stored.

    Raises:
        SiteError: The API server refuses the request or does not answer.
    """
    machines: list[Machine] = []

    def read_page(page: list[Json]) -> None:
        machines.extend(machine for item in page if (machine := read(item)) is not None)

    try:
        _, version = await client.list_all(resource, namespace, labels=labels, on_page=read_page)
    except ApiError as error:
        raise make_site_error(error) from error
    return machines, version


async def follow(
    client: KubeClient, resource: Resource, read: Read, *, namespace: str, labels: str, seen: Seen | None = None
) -> AsyncGenerator[SiteEvent | None, None]:
    """Yield a :class:`Snapshot`, then changes; yield None about every minute without changes (a bookmark).

    If a change of an object does not change its machine, the function does not yield it. If a watch breaks, a new watch
    continues after the last event. If the version of that event is too old, a new snapshot follows. The function
    updates ``seen``.

    Raises:
        SiteError: The API server refuses the request or does not answer.
    """
    seen = seen or Seen()
    while True:
        machines, version = await list_machines(client, resource, read, namespace=namespace, labels=labels)
        known = {machine.id: machine for machine in machines}
        seen.apply_snapshot(known)
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
                            seen.apply_change(event.object, machine)
                            yield Changed(machine)
                fresh = True
            except ExpiredError:
                break
            except UnavailableError as error:
                if not fresh:
                    raise make_site_error(error) from error
            except ApiError as error:
                raise make_site_error(error) from error


def _version(item: Json) -> int:
    """Return the resource version as a number, by which the versions of one resource are ordered (KEP-5504)."""
    return int(item["metadata"]["resourceVersion"])
