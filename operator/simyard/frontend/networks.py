"""A CloudSite as an OCCI network, and the addresses of machines as their interfaces at it. Read-only."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

from simyard.api.base import find_condition
from simyard.api.cloud_site import CloudSite
from simyard.api.names import ConditionType
from simyard.apiserver.objects import CachedWorker
from simyard.frontend.listing import Entry, Listings, entry_of
from simyard.frontend.memberships import Memberships
from simyard.frontend.placing import EVERYTHING, Dependents
from simyard.kube.cache import Cache
from simyard.occi.model import Link, Resource, Value
from simyard.occi.standard import COMPUTE, IPNETWORKINTERFACE, NETWORK, NETWORKINTERFACE
from simyard_sites.base import MachineState

NETWORKS = "/network/"
NETWORKINTERFACES = "/networkinterface/"
_COMPUTES = "/compute/"


def is_open(site: CloudSite, namespace: str) -> bool:
    """Return whether workers of a namespace may run at a site."""
    allowed = site.spec.allowed_namespaces
    return allowed.from_ != "Selected" or namespace in allowed.names


def is_active(site: CloudSite) -> bool:
    """Return whether a site can be used."""
    ready = find_condition(site.status.conditions, ConditionType.READY)
    return ready is not None and ready.status == "True"


def network(site: CloudSite, mixins: tuple[str, ...]) -> Resource:
    """Return the network of a site."""
    name = site.metadata.name
    attributes: dict[str, Value] = {
        "occi.network.label": name,
        "occi.network.state": "active" if is_active(site) else "inactive",
    }
    return Resource(NETWORK, name, NETWORKS + name, mixins, attributes, title=name)


def interface_paths(worker: CachedWorker, compute_id: str) -> list[str]:
    """Return the paths of a compute's interfaces, one for each address."""
    return [f"{NETWORKINTERFACES}{compute_id}_{number}" for number in range(len(worker.addresses))]


def parse_interface(interface_id: str) -> tuple[str, int] | None:
    """Return the id of the compute and the number of the address that an interface's id names."""
    compute_id, _, number = interface_id.rpartition("_")
    if not compute_id or not number.isascii() or not number.isdecimal() or str(int(number[:9])) != number:
        return None
    return compute_id, int(number)


def networkinterface(worker: CachedWorker, path: str, mixins: tuple[str, ...]) -> Link:
    """Return the link of a compute to its site's network with one of its addresses; ``path`` names which.

    The interface is named ``eth0``, ``eth1``, ... where the site has no name with a number in it: clients such as
    Infrastructure Manager look for the number.
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
    """The networks of a namespace and the interfaces of its computes. A :class:`View` owns it.

    ``workers`` are those that are shown, by the ids of their computes. ``changed`` is called with the paths of networks
    that have come, gone or changed.
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

    def site(self, path: str) -> CloudSite | None:
        """Return the CloudSite of a network: one that the namespace may use, or that has a worker shown here."""
        if not path.startswith(NETWORKS):
            return None
        name = path.removeprefix(NETWORKS)
        site = self._sites.get("", name)
        if site is None or is_open(site, self._namespace):
            return site
        return site if any(worker.site == name for worker in self._workers.values()) else None

    def worker(self, path: str) -> CachedWorker | None:
        """Return the Worker of an interface."""
        named = parse_interface(path.removeprefix(NETWORKINTERFACES))
        worker = self._workers.get(named[0]) if named is not None else None
        return worker if named is not None and worker is not None and named[1] < len(worker.addresses) else None

    def entity(self, path: str) -> Resource | Link | None:
        """Return the network or the interface at a path."""
        mixins = self._memberships.of(path)
        if (site := self.site(path)) is not None:
            return network(site, mixins)
        worker = self.worker(path)
        return networkinterface(worker, path, mixins) if worker is not None else None

    def interfaces(self, worker: CachedWorker, compute_id: str) -> list[Link]:
        """Return the interfaces of a compute."""
        paths = interface_paths(worker, compute_id)
        return [networkinterface(worker, path, self._memberships.of(path)) for path in paths]

    def key(self, path: str) -> Hashable:
        """Return what a network's rendering depends on; None if there is none at the path."""
        site = self.site(path)
        return None if site is None else (site.metadata.uid, is_active(site))

    def list_interfaces(
        self, worker: CachedWorker, compute_id: str, change: Callable[[Entry, Iterable[Hashable]], None]
    ) -> None:
        """Add the interfaces of a compute to the listings that have them, or remove them."""
        for path in interface_paths(worker, compute_id):
            change(entry_of(worker.metadata, path), [EVERYTHING, NETWORKINTERFACE, IPNETWORKINTERFACE])
            self._memberships.touched(path)

    def _site_changed(self, old: CloudSite | None, new: CloudSite | None) -> None:
        site = new or old
        assert site is not None, "one of the two is there"
        path = NETWORKS + site.metadata.name
        entry = entry_of(site.metadata, path) if new is not None and is_open(new, self._namespace) else None
        came_or_went = self._dependents.place(path, entry, (EVERYTHING, NETWORK))
        if came_or_went or old is None or new is None or is_active(old) != is_active(new):
            self._changed((path,))
