# SPDX-License-Identifier: Apache-2.0
"""Defines the simulated cloud: its objects, its clock, and the VMs by id and by state."""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections.abc import Callable, Iterable

from simyard_simulators.oned.machine import Vm
from simyard_simulators.oned.objects import Group, Host, Image, Network, Permissions, Quota, User, VmTemplate
from simyard_simulators.oned.settings import Failure, Settings, Step
from simyard_simulators.oned.states import Lcm, State
from simyard_simulators.oned.template import Template, parse

Clock = Callable[[], float]

FIRST_USER = 2
"""The first id after oneadmin and serveradmin."""

WORKER_TEMPLATE = """
CPU="1"
VCPU="1"
MEMORY="512"
DISK=[IMAGE="debian",IMAGE_UNAME="oneadmin"]
NIC=[NETWORK="private",NETWORK_UNAME="oneadmin"]
GRAPHICS=[TYPE="VNC",LISTEN="0.0.0.0"]
CONTEXT=[NETWORK="YES",SSH_PUBLIC_KEY="$USER[SSH_PUBLIC_KEY]"]
HYPERVISOR="kvm"
"""


class Cloud:
    """A simulated cloud with some objects.

    It has a user ``simyard`` (password ``secret``, group ``simyard``), a template ``worker``, an image ``debian`` and a
    network ``private``. oneadmin owns the last three, and all users may use them.

    The cloud has no timers. :meth:`advance` carries out the planned actions that are due, in the order of their times.
    The server calls it at the beginning of every call.
    """

    def __init__(self, settings: Settings, clock: Clock = time.time) -> None:
        self.settings = settings
        self.random = random.Random(settings.seed)  # noqa: S311 (failures and jitter, nothing secret)
        self.failures: list[Failure] = list(settings.failures)
        self.groups: dict[int, Group] = {}
        self.users: dict[int, User] = {}
        self.templates: dict[int, VmTemplate] = {}
        self.images: dict[int, Image] = {}
        self.networks: dict[int, Network] = {}
        self.hosts: dict[int, Host] = {}
        self.vms: dict[int, Vm] = {}
        self.by_state: dict[State, dict[int, None]] = {state: {} for state in State}
        self.default_user_quota: dict[str, float] = {}
        self.default_group_quota: dict[str, float] = {}
        self.now = clock()
        self._clock = clock
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._furnish()

    def advance(self) -> None:
        """Carry out the planned actions that are due."""
        until = self._clock()
        while self._heap and self._heap[0][0] <= until:
            self.now, _, action = heapq.heappop(self._heap)
            action()
        self.now = max(self.now, until)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Plan an action after a delay, which the time scale shortens or prolongs."""
        heapq.heappush(self._heap, (self.now + seconds * self.settings.time_scale, next(self._order), action))

    def latency(self, name: str) -> float:
        """Return the latency with this name, with a random jitter."""
        latencies = self.settings.latencies
        seconds: float = getattr(latencies, name)
        return seconds * (1 + latencies.jitter * self.random.uniform(-1, 1))

    def fails(self, vm: Vm, step: Step) -> Failure | None:
        """Return the failure of the VM in this step, or None."""
        for failure in self.failures:
            concerned = failure.step is step and failure.template in (None, vm.template_id) and failure.name in vm.name
            if concerned and self.random.random() < failure.share:
                return failure
        return None

    # Objects

    def user(self, name: str) -> User | None:
        """Return a user by name, or None."""
        return next((user for user in self.users.values() if user.name == name), None)

    def expire_tokens(self, name: str) -> None:
        """Expire the login tokens of a user."""
        for token in self._owner(name).tokens:
            token.expires = self.now - 1

    def add_group(self, name: str, oid: int | None = None) -> Group:
        """Add a group, with an id from 100."""
        group = Group(_free(self.groups, 100) if oid is None else oid, name)
        self.groups[group.oid] = group
        return group

    def add_user(self, name: str, password: str, *groups: str, oid: int | None = None) -> User:
        """Add a user; the first group is the primary one."""
        members = [group for group in self.groups.values() if group.name in groups]
        members.sort(key=lambda group: groups.index(group.name))
        user = User(
            _free(self.users, FIRST_USER) if oid is None else oid, name, password, [group.oid for group in members]
        )
        self.users[user.oid] = user
        for group in members:
            group.users.append(user.oid)
        return user

    def add_template(self, name: str, source: str, owner: str = "oneadmin", permissions: str = "604") -> VmTemplate:
        """Add a VM template in oned's string form."""
        oid, user = _free(self.templates, 0), self._owner(owner)
        template = VmTemplate(oid, name, *self._owned(user), Permissions.of(permissions), parse(source), int(self.now))
        self.templates[oid] = template
        return template

    def add_image(self, name: str, owner: str = "oneadmin", permissions: str = "604") -> Image:
        """Add an image."""
        oid = _free(self.images, 0)
        self.images[oid] = Image(oid, name, *self._owned(self._owner(owner)), Permissions.of(permissions))
        return self.images[oid]

    def add_network(self, name: str, owner: str = "oneadmin", permissions: str = "604") -> Network:
        """Add a network."""
        oid = _free(self.networks, 0)
        self.networks[oid] = Network(oid, name, *self._owned(self._owner(owner)), Permissions.of(permissions))
        return self.networks[oid]

    def add_host(self, cores: float, memory_mib: int) -> Host:
        """Add a host."""
        oid = _free(self.hosts, 0)
        self.hosts[oid] = Host(oid, f"node{oid}", cores, memory_mib)
        return self.hosts[oid]

    def quotas(self, vm_uid: int, vm_gid: int) -> list[tuple[str, Quota, dict[str, float]]]:
        """Return the quotas of the user and the group of an owner; oneadmin and its group have no quotas."""
        quotas = []
        if vm_uid != 0:
            quotas.append((f"user [{vm_uid}]", self.users[vm_uid].quota, self.default_user_quota))
        if vm_gid != 0:
            quotas.append((f"group [{vm_gid}]", self.groups[vm_gid].quota, self.default_group_quota))
        return quotas

    def index(self, vm: Vm, state: State, lcm: Lcm) -> None:
        """Set the state of a VM. Every change of a state uses this method."""
        del self.by_state[vm.state][vm.oid]
        vm.previous = (vm.state, vm.lcm)
        vm.state, vm.lcm = state, lcm
        vm.generation += 1
        vm.rendered = None
        self.by_state[state][vm.oid] = None

    def insert(self, vm: Vm) -> None:
        """Add a VM."""
        self.vms[vm.oid] = vm
        self.by_state[vm.state][vm.oid] = None

    def next_vm_id(self) -> int:
        """Return the id of the next VM; the first one is 0."""
        return next(reversed(self.vms), -1) + 1

    def named(self, name: str) -> list[Vm]:
        """Return all VMs with this name that are not done; oned allows several."""
        return [vm for vm in self.vms.values() if vm.name == name and vm.state is not State.DONE]

    def fill(self, finished: int = 0, running: int = 0, owner: str = "", prefix: str = "filler") -> range:
        """Add VMs that are DONE and VMs that run, without checks of hosts and quotas; return their ids.

        They belong to the first user unless ``owner`` names another.
        """
        user = self._owner(owner) if owner else self.users[FIRST_USER]
        first = self.next_vm_id()
        template = Template([("CPU", "1"), ("MEMORY", "512"), ("TEMPLATE_ID", "0"), ("VCPU", "1")])
        hosts = list(self.hosts.values())
        for oid in range(first, first + finished + running):
            vm = Vm(oid, f"{prefix}-{oid}", *self._owned(user), Permissions(), template, Template(), int(self.now), 0)
            vm.deploy_id = f"one-{oid}"
            if oid < first + finished:
                vm.state, vm.ended = State.DONE, int(self.now)
            else:
                vm.state, vm.lcm, vm.host = State.ACTIVE, Lcm.RUNNING, hosts[oid % len(hosts)].oid
                hosts[oid % len(hosts)].vms[oid] = None
            self.insert(vm)
        for _, quota, _ in self.quotas(user.oid, user.gid):
            quota.add({"VMS": running})
        return range(first, first + finished + running)

    def _owner(self, name: str) -> User:
        user = self.user(name)
        if user is None:
            raise LookupError(f"no user {name}")
        return user

    def _owned(self, user: User) -> tuple[int, int, str, str]:
        return user.oid, user.gid, user.name, self.groups[user.gid].name

    def _furnish(self) -> None:
        for oid, name in ((0, "oneadmin"), (1, "users")):
            self.add_group(name, oid)
        self.add_group("simyard")
        self.add_user("oneadmin", "opennebula", "oneadmin", oid=0)
        self.add_user("serveradmin", "server", "oneadmin", oid=1)
        self.add_user("simyard", "secret", "simyard")
        self.add_image("debian")
        self.add_network("private")
        self.add_template("worker", WORKER_TEMPLATE)
        for _ in range(self.settings.hosts):
            self.add_host(self.settings.cores_per_host, self.settings.memory_mib_per_host)


def _free(taken: Iterable[int], first: int) -> int:
    return max((oid + 1 for oid in taken), default=first) if any(oid >= first for oid in taken) else first
