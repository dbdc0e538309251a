# SPDX-License-Identifier: Apache-2.0
"""Converts a CloudSite into an OCCI network, and the addresses of machines into its network interfaces. Read-only."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

from simyard.api.base import find_condition
from simyard.api.cloud_site import CloudSite
from simyard.api.names import ConditionType
from simyard.api.site_permission import is_open
from simyard.frontend.entities.listed_objects import EVERYTHING, Dependents
from simyard.frontend.entities.listing import ChangeListings, Listings, make_entry
from simyard.frontend.entities.memberships import Memberships
from simyard.kube.cache import Cache
from simyard.occi.model import Link, Resource, Value
from simyard.occi.standard import COMPUTE, IPNETWORKINTERFACE, NETWORK, NETWORKINTERFACE
from simyard.serving.objects import CachedWorker
from simyard_sites.base import MachineState

NETWORKS = "/network/"
NETWORKINTERFACES = "/networkinterface/"
_COMPUTES = "/compute/"


def is_active(site: CloudSite) -> bool:
    """Return true if a site is Ready."""
    ready = find_condition(site.status.conditions, ConditionType.READY)
    return ready is not None and ready.status == "True"


def build_network(site: CloudSite, mixins: tuple[str, ...]) -> Resource:
    """Return the network of a site."""
    name = site.metadata.name
    attributes: dict[str, Value] = {
        "occi.network.label": name,
        "occi.network.state": "active" if is_active(site) else "inactive",
    }
    return Resource(NETWORK, name, NETWORKS + name, mixins, attributes, title=name)


def list_interface_paths(worker: CachedWorker, compute_id: str) -> list[str]:
    """Return the paths of a compute's interfaces, one for each address."""
    return [f"{NETWORKINTERFACES}{compute_id}_{number}" for number in range(len(worker.addresses))]


def parse_interface(interface_id: str) -> tuple[str, int] | None:
    """Return the id of the compute and the number of the address, from the id of an interface."""
    compute_id, _, number = interface_id.rpartition("_")
    if not compute_id or not number.isascii() or not number.isdecimal() or str(int(number[:9])) != number:
        return None
    return compute_id, int(number)


def build_networkinterface(worker: CachedWorker, path: str, mixins: tuple[str, ...]) -> Link:
    """Return the link from a compute to the network of its site, with the address that ``path`` names.

    The interface is named ``eth0``, ``eth1``, ... if its name at the site has no number: clients such as Infrastructure
    Manager look for the number.
    """
    interface_id = path.removeprefix(NETWORKINTERFACES)
    compute_id, _, digits = interface_id.rpartition("_")
    number = int(digits)
    address = worker.addresses[number]
    is_numbered = any(character.isdecimal() for character in address.interface)
    attributes: dict[str, Value] = {
        "occi.networkinterface.interface": address.interface if is_numbered else f"eth{number}",
        **({"occi.networkinterface.mac": address.mac} if address.mac else {}),
        "occi.networkinterface.state": "active" if worker.machine_state == MachineState.RUNNING else "inactive",
        "occi.networkinterface.address": address.ip,
        "occi.networkinterface.allocation": "dynamic",
    }
    return Link(
        NETWORKINTERFACE,
        interface_id,
        path,
        _COMPUTES + compute_id,
        NETWORKS + worker.site,
        (IPNETWORKINTERFACE, *mixins),
        attributes,
        title=worker.site,
        target_kind=(NETWORK,),
        source_kind=COMPUTE,
    )


class Networks:
    """The networks of a namespace and the network interfaces of its computes. A :class:`View` owns it.

    ``workers`` are the shown Workers by the ids of their computes. ``changed`` is called with the paths of networks
    that are added, removed or changed.
    """

    def __init__(
        self,
        sites: Cache[CloudSite],
        namespace: str,
        workers: Mapping[str, CachedWorker],
        listings: Listings,
        memberships: Memberships,
        changed: Callable[[Iterable[str]], None],
    ) -> None:
        self._sites = sites
        self._namespace = namespace
        self._workers = workers
        self._dependents = Dependents(listings)
        self._memberships = memberships
        self._changed = changed
        sites.subscribe(self._site_changed)

    def find_site(self, path: str) -> CloudSite | None:
        """Return the CloudSite of a network, if the namespace may use it or one of the shown workers is there."""
        if not path.startswith(NETWORKS):
            return None
        name = path.removeprefix(NETWORKS)
        site = self._sites.get("", name)
        if site is None or is_open(site, self._namespace):
            return site
        return site if any(worker.site == name for worker in self._workers.values()) else None

    def find_worker(self, path: str) -> CachedWorker | None:
        """Return the Worker of an interface."""
        named = parse_interface(path.removeprefix(NETWORKINTERFACES))
        worker = self._workers.get(named[0]) if named is not None else None
        return worker if named is not None and worker is not None and named[1] < len(worker.addresses) else None

    def find_entity(self, path: str) -> Resource | Link | None:
        """Return the network or the interface at a path; None if it does not exist."""
        mixins = self._memberships.list_mixins(path)
        if (site := self.find_site(path)) is not None:
            return build_network(site, mixins)
        worker = self.find_worker(path)
        return build_networkinterface(worker, path, mixins) if worker is not None else None

    def build_interfaces(self, worker: CachedWorker, compute_id: str) -> list[Link]:
        """Return the interfaces of a compute."""
        paths = list_interface_paths(worker, compute_id)
        return [build_networkinterface(worker, path, self._memberships.list_mixins(path)) for path in paths]

    def make_key(self, path: str) -> Hashable:
        """Return a key that changes whenever a network's rendering changes; None if no network exists at the path."""
        site = self.find_site(path)
        return None if site is None else (site.metadata.uid, is_active(site))

    def list_interfaces(self, worker: CachedWorker, compute_id: str, change: ChangeListings) -> None:
        """Add the interfaces of a compute to their listings, or remove them."""
        for path in list_interface_paths(worker, compute_id):
            change(make_entry(worker.metadata, path), [EVERYTHING, NETWORKINTERFACE, IPNETWORKINTERFACE])
            self._memberships.forget_shown(path)

    def _site_changed(self, old: CloudSite | None, new: CloudSite | None) -> None:
        site = new or old
        assert site is not None, "one of the two is there"
        path = NETWORKS + site.metadata.name
        entry = make_entry(site.metadata, path) if new is not None and is_open(new, self._namespace) else None
        came_or_went = self._dependents.set_listings(path, entry, (EVERYTHING, NETWORK))
        if came_or_went or old is None or new is None or is_active(old) != is_active(new):
            self._changed((path,))
