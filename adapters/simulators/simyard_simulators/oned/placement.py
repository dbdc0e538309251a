# SPDX-License-Identifier: Apache-2.0
"""Simulates the scheduler: windows, limits of actions, capacity and requirements."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable

from simyard_simulators.oned.cloud import Cloud
from simyard_simulators.oned.machine import History, Vm
from simyard_simulators.oned.objects import Host


class Placement:
    """The placement of PENDING VMs by the rules of :class:`Scheduler`; ``placed`` is called with each placed VM."""

    def __init__(self, cloud: Cloud, placed: Callable[[Vm], None]) -> None:
        self._cloud = cloud
        self._placed = placed
        self._waiting: dict[int, float] = {}
        self._planned: deque[int] = deque()
        self._deploying: dict[int, int] = {}
        self._window: int | None = None
        self._windows = 0
        self._closed_at = float("-inf")

    def wait(self, vm: Vm) -> None:
        """Add a VM that has become PENDING."""
        self._waiting[vm.oid] = self._cloud.now
        self._open()

    def forget(self, vm: Vm) -> None:
        """Remove a VM that is not to be placed any more."""
        self._waiting.pop(vm.oid, None)
        if vm.oid in self._planned:
            self._planned.remove(vm.oid)

    def leave(self, vm: Vm) -> None:
        """Release a VM's place on its host."""
        if vm.host is None:
            return
        host = self._cloud.hosts[vm.host]
        if vm.oid in host.vms:
            del host.vms[vm.oid]
            host.used_cores -= vm.cores
            host.used_memory_mib -= vm.memory_mib
        vm.host = None

    def end_deployment(self, vm: Vm) -> None:
        """Record that a deployment has ended or failed, so that the next one may start."""
        host = self._deploying.pop(vm.oid, None)
        if host is not None:
            self._cloud.hosts[host].deploying -= 1
            self._dispatch()

    def _open(self) -> None:
        scheduler = self._cloud.settings.scheduler
        if self._window is None:
            self._windows += 1
            self._window = self._windows
            self._close_later(scheduler.interval_seconds)
        full = scheduler.window_length and len(self._waiting) >= scheduler.window_length
        pause = scheduler.interval_seconds * self._cloud.settings.time_scale
        if full and self._cloud.now - self._closed_at >= pause:
            self._close()

    def _close_later(self, seconds: float) -> None:
        window = self._window

        def close() -> None:
            if self._window == window:
                self._close()

        self._cloud.later(seconds, close)

    def _close(self) -> None:
        """End a window: plan the oldest waiting VMs, and open the next window for the others."""
        scheduler, cloud = self._cloud.settings.scheduler, self._cloud
        self._window, self._closed_at = None, cloud.now
        due = sorted(oid for oid, since in self._waiting.items() if since <= cloud.now)
        chosen = due[: scheduler.vms_per_window] if scheduler.vms_per_window else due
        for oid in chosen:
            del self._waiting[oid]
            self._planned.append(oid)
        self._dispatch(new_window=True)
        if any(since <= cloud.now for since in self._waiting.values()):
            self._open()

    def _dispatch(self, new_window: bool = False) -> None:
        """Deploy planned VMs within the limits of actions."""
        scheduler, cloud = self._cloud.settings.scheduler, self._cloud
        in_window: dict[int, int] = {}
        blocked: list[int] = []
        while self._planned:
            if scheduler.actions_per_cluster and len(self._deploying) >= scheduler.actions_per_cluster:
                break
            vm = cloud.vms[self._planned.popleft()]
            fitting = self._fitting(vm)
            if not fitting:
                self._retry(vm)
                continue
            free = [
                host
                for host in fitting
                if (not scheduler.actions_per_host or host.deploying < scheduler.actions_per_host)
                and not 0 < scheduler.vms_per_host_and_window <= in_window.get(host.oid, 0)
            ]
            if not free:
                blocked.append(vm.oid)
                if not scheduler.vms_per_host_and_window and not vm.user_template.get("SCHED_REQUIREMENTS"):
                    break
                continue
            host = min(free, key=lambda host: len(host.vms))
            in_window[host.oid] = in_window.get(host.oid, 0) + 1
            self._deploy(vm, host)
        if scheduler.vms_per_host_and_window and new_window:
            self._waiting |= dict.fromkeys(blocked, cloud.now)
        else:
            self._planned.extendleft(reversed(blocked))

    def _deploy(self, vm: Vm, host: Host) -> None:
        host.vms[vm.oid] = None
        host.used_cores += vm.cores
        host.used_memory_mib += vm.memory_mib
        host.deploying += 1
        self._deploying[vm.oid] = host.oid
        vm.host = host.oid
        vm.histories.append(History(len(vm.histories), host.oid, host.name, int(self._cloud.now)))
        self._placed(vm)

    def _fitting(self, vm: Vm) -> list[Host]:
        """Return the hosts that can take the VM; if there is none, SCHED_MESSAGE gives the reason."""
        hosts = [host for host in self._cloud.hosts.values() if host.enabled]
        requirements = vm.user_template.get("SCHED_REQUIREMENTS")
        fitting = [host for host in hosts if host.fits(vm.cores, vm.memory_mib)]
        matching = [host for host in fitting if _meets(host, requirements)]
        if not hosts:
            self._set_message(vm, "No hosts enabled to run VMs")
        elif not fitting:
            self._set_message(vm, "No host with enough capacity to deploy the VM")
        elif not matching:
            self._set_message(vm, f"No host meets capacity and SCHED_REQUIREMENTS: {requirements}")
        return matching

    def _set_message(self, vm: Vm, why: str) -> None:
        vm.user_template.set("SCHED_MESSAGE", f"{time.ctime(self._cloud.now)}: Cannot dispatch VM: {why}")
        vm.rendered = None

    def _retry(self, vm: Vm) -> None:
        scheduler = self._cloud.settings.scheduler
        self._waiting[vm.oid] = self._cloud.now + scheduler.retry_seconds * self._cloud.settings.time_scale
        self._cloud.later(scheduler.retry_seconds, self._reconsider)

    def _reconsider(self) -> None:
        if any(since <= self._cloud.now for since in self._waiting.values()):
            self._open()


_TOKEN = re.compile(r'\s*(?:([&|!()])(?!=)|([A-Za-z_]+)\s*(!?=)\s*"?([^"&|)]*)"?)')


def _meets(host: Host, requirements: str) -> bool:
    """Return True if the host meets a requirement of ``=``, ``!=``, ``&``, ``|``, ``!`` and brackets.

    A host without the attribute does not meet it, and no host meets a requirement that cannot be parsed. ``&`` and
    ``|`` have the same precedence, from the left.
    """
    if not requirements.strip():
        return True
    tokens = _TOKEN.findall(requirements)
    if _TOKEN.sub("", requirements).strip():
        return False
    attributes = {"ID": str(host.oid), "NAME": host.name, "CLUSTER_ID": "0", "CLUSTER": "default", "HYPERVISOR": "kvm"}

    def term() -> bool:
        operator, name, relation, value = tokens.pop(0)
        if operator == "!":
            return not term()
        if operator == "(":
            inner = expression()
            tokens.pop(0)
            return inner
        equal: bool = attributes.get(name.upper()) == value.strip()
        return equal is (relation == "=")

    def expression() -> bool:
        result = term()
        while tokens and tokens[0][0] in ("&", "|"):
            both = tokens.pop(0)[0] == "&"
            other = term()
            result = (result and other) if both else (result or other)
        return result

    try:
        return expression()
    except IndexError:
        return False
