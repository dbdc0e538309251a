# SPDX-License-Identifier: Apache-2.0
"""Measure the yardsticks at OpenNebula: pyone, used as its documentation suggests."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyone

from simyard_bench.sites.oned import PASSWORD, USER
from simyard_dev.errors import SetupError
from simyard_sites.base import MachineRequest
from simyard_sites.guest import build_context
from simyard_sites.opennebula.client import SET_IDS, split
from simyard_sites.opennebula.templates import Value, render

POLL_SECONDS = 0.5
"""Interval of polls; equal to that of our site while machines start."""
START_SECONDS = 300.0
_MINE, _ANY, _NOT_DONE = -3, -1, -1
_ACTIVE = _RUNNING = 3


@dataclass(frozen=True)
class Spent:
    """The seconds and CPU seconds of a call; for starts, also the seconds until the last machine was accepted."""

    seconds: float
    cpu_seconds: float
    accepted_seconds: float = 0.0


class Pyone:
    """A client of oned that uses pyone."""

    def __init__(self, url: str) -> None:
        self._one = pyone.OneServer(url, session=f"{USER}:{PASSWORD}")

    def start(self, requests: Sequence[MachineRequest]) -> Spent:
        """Create machines one after the other, and poll the pool until all of them run.

        Raises:
            SetupError: not all machines ran in time.
        """
        templates = [render(_attributes(request)) for request in requests]
        cpu, began = time.process_time(), time.monotonic()
        for request, template in zip(requests, templates, strict=True):
            self._one.template.instantiate(0, request.name, False, template, False)
        accepted = time.monotonic()
        while self._running() < len(requests):
            if time.monotonic() > began + START_SECONDS:
                raise SetupError(f"not all machines run after {START_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)
        return Spent(time.monotonic() - began, time.process_time() - cpu, accepted - began)

    def look(self, ids: Sequence[int]) -> Spent:
        """Read machines by their ids, in as many requests as our site."""
        cpu, began = time.process_time(), time.monotonic()
        found = sum(len(self._one.vmpool.infoset(",".join(map(str, part)), False).VM) for part in split(ids, SET_IDS))
        assert found == len(ids)
        return Spent(time.monotonic() - began, time.process_time() - cpu)

    def look_at_all(self) -> Spent:
        """Read all machines of the account that still exist."""
        cpu, began = time.process_time(), time.monotonic()
        self._one.vmpool.info(_MINE, _ANY, _ANY, _NOT_DONE)
        return Spent(time.monotonic() - began, time.process_time() - cpu)

    def _running(self) -> int:
        pool = self._one.vmpool.info(_MINE, _ANY, _ANY, _NOT_DONE).VM
        return sum(vm.STATE == _ACTIVE and vm.LCM_STATE == _RUNNING for vm in pool)


def _attributes(request: MachineRequest) -> Iterator[tuple[str, Value]]:
    """Yield the same attributes as our site sends."""
    yield "CPU", f"{request.cpu_millis / 1000:g}"
    yield "VCPU", str(request.cores)
    yield "MEMORY", str(request.memory_mib)
    yield "LABELS", f"{request.owner.pool}/{request.owner.worker}/{request.owner.worker_uid}"
    yield "CONTEXT", {"NETWORK": "YES", "SET_HOSTNAME": request.name, **build_context(request.bootstrap, "", ())}
