# SPDX-License-Identifier: Apache-2.0
"""Everything breaks at random while work goes on: nothing is lost, nothing runs twice, nothing stays behind.

Each round kills or freezes processes, floods the platform with messages that no honest guest sends, or fails requests
of the operator to the API server, one fault or several at once. `ATTACK_SEED` repeats the choices of a run (not its
timing); `ATTACK_ROUNDS` is its length.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
from api_faults import FaultProxy
from attack_system import POOL, System, hit, wait_until
from guest_flood import flood, storm

from simyard.api import names
from simyard.api.base import Json
from simyard_dev.environment import Environment
from simyard_dev.platform import Platform

SEED = int(os.environ.get("ATTACK_SEED") or secrets.randbelow(2**32))
ROUNDS = int(os.environ.get("ATTACK_ROUNDS") or 20)
TENANTS = {"honest": 3, "hostile": 2, "other": 2}
HOSTILE = "hostile"
FREEZE_SECONDS = (1.0, 12.0)
STORM_SECONDS = 10.0
DYING_SECONDS = 30.0
ACTION_PAUSE_SECONDS = 0.5
FORGIVEN = {"Interrupted", "WorkerLost"}
"""Reasons for which an action may fail although its program did not: its worker died meanwhile."""

pytestmark = pytest.mark.timeout(1200)

Victim = TypeVar("Victim")


@dataclass
class Attack:
    """The rounds of one run, drawn from a seed, and their effects."""

    system: System
    proxy: FaultProxy
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)

    def round(self) -> None:
        """Break something, leave it broken for a while, and repair it."""
        attacks = [self.kill, self.kill, self.freeze, self.freeze, self.flood, self.fail_requests]
        for attack in self.chance.sample(attacks, k=self.chance.choice([1, 1, 2])):
            attack()
        self.system.repair()
        self.proxy.share = 0.0

    def kill(self) -> None:
        """Kill one process of a kind."""
        kind = self.chance.choice(self.system.kinds())
        for identity in self._one_of(kind.alive()):
            self._tell(f"kill {kind.name}")
            hit(identity, signal.SIGKILL)
            assert identity.wait_gone(DYING_SECONDS), "the killed process has not ended"

    def freeze(self) -> None:
        """Stop one process of a kind for some seconds."""
        kind = self.chance.choice(self.system.kinds())
        for identity in self._one_of(kind.alive()):
            self._tell(f"freeze {kind.name}")
            hit(identity, signal.SIGSTOP)
            try:
                time.sleep(self.chance.uniform(*FREEZE_SECONDS))
            finally:
                hit(identity, signal.SIGCONT)

    def flood(self) -> None:
        """Send messages that no honest guest sends, with the credentials of a guest."""
        for bootstrap in self._one_of(self.system.bootstraps(HOSTILE)):
            self._tell("flood")
            self.done["flood messages"] += asyncio.run(flood(bootstrap.read_bytes(), self.chance.randrange(2**32)))

    def storm(self) -> None:
        """Send well-formed events as fast as the broker accepts them, until it closes the connection."""
        for bootstrap in self._one_of(self.system.bootstraps(HOSTILE)):
            self._tell("storm")
            self.done["storm messages"] += asyncio.run(storm(bootstrap.read_bytes(), STORM_SECONDS))

    def fail_requests(self) -> None:
        """Fail a third of the operator's requests until the end of the round, and give the operator work."""
        self._tell("API faults")
        self.proxy.share = 0.3
        for bootstrap in self._one_of(self.system.bootstraps("other")):
            path = f"/apis/{names.API_VERSION}/namespaces/other/workers"
            self.system.api.request("DELETE", f"{path}/{bootstrap_worker(bootstrap)}")
        time.sleep(self.chance.uniform(*FREEZE_SECONDS))

    def _one_of(self, items: Sequence[Victim]) -> list[Victim]:
        return [self.chance.choice(items)] if items else []

    def _tell(self, what: str) -> None:
        self.done[what] += 1
        print(f"attack: {what}", flush=True)


class Work:
    """The work of the tenants: a thread creates actions within the context; ``wanted`` has them by key."""

    def __init__(self, system: System) -> None:
        self.wanted: dict[str, str] = {}
        self._system = system
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._create, name="work", daemon=True)

    def __enter__(self) -> Work:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(300)
        assert not self._thread.is_alive(), "actions can be created"

    def _create(self) -> None:
        for number in itertools.count():
            action = "again" if number % 4 == 0 else "once"
            for tenant in self._system.tenants:
                self._system.act(tenant, f"a-{number}", action)
                self.wanted[f"{tenant}/a-{number}"] = action
            if self._stop.wait(ACTION_PAUSE_SECONDS):
                return


def bootstrap_worker(bootstrap: Path) -> str:
    """Return the name of the Worker of a machine."""
    return str(json.loads(bootstrap.read_text())["worker"])


@pytest.fixture
def attacked(simyard_directory: Path, tmp_path: Path) -> Iterator[Attack]:
    print(f"\nattack: ATTACK_SEED={SEED} ATTACK_ROUNDS={ROUNDS}", flush=True)
    environment = Environment(simyard_directory / "attack")
    environment.up(fresh=True)
    control_plane = environment.control_plane
    proxy = FaultProxy(control_plane.server, control_plane.authority, SEED)
    proxy.start()
    platform = Platform(environment, occi=True, operator_server=proxy.url)
    try:
        platform.up()
        system = System(environment, platform, TENANTS, tmp_path / "ledger")
        system.publish()
        yield Attack(system, proxy, random.Random(SEED))
    finally:
        platform.down()
        environment.control_plane.stop(0)
        environment.broker.stop(0)
        proxy.stop()


def test_nothing_is_lost_and_nothing_runs_twice(attacked: Attack) -> None:
    system = attacked.system
    with Work(system.another()) as work:
        for number in range(ROUNDS):
            attacked.round()
            if number == ROUNDS // 2:
                attacked.storm()  # once, because the quarantine of its pool doubles each time
    check_actions(system, work.wanted)
    check_fleet(system)
    check_nothing_is_left(system)
    print(f"attack: {dict(attacked.done)}, API faults {dict(attacked.proxy.faults)}", flush=True)


def check_actions(system: System, wanted: dict[str, str]) -> None:
    """Check that every accepted action ended, and ran as often as its status and its declaration say."""
    wait_until(lambda: not [item for item in system.list(names.SERVICE_ACTIONS) if not ending(item)],
               "actions have not ended", 300)  # fmt: skip
    ends = {f"{i['metadata']['namespace']}/{i['metadata']['name']}": i for i in system.list(names.SERVICE_ACTIONS)}
    assert ends.keys() == wanted.keys()
    runs, counts = system.runs(), Counter(ending(item) for item in ends.values())
    print(f"attack: {len(wanted)} actions: {dict(counts)}", flush=True)
    for key, action in wanted.items():
        end = ending(ends[key])
        assert end == "Succeeded" or end in FORGIVEN, (key, ends[key]["status"])
        if end == "Succeeded":
            assert runs[key] >= 1, key
            assert ends[key]["status"]["result"] == {"key": key}
        if action == "once":
            assert runs[key] <= 1, f"{key} ran {runs[key]} times"


def check_fleet(system: System) -> None:
    """Check that machines, Workers and queues are the same set."""

    def same() -> bool:
        uids = {item["metadata"]["uid"] for item in system.list(names.WORKERS)}
        queues = {
            name.rpartition(".")[2] for name in system.broker_names("queues") if name.startswith("simyard.worker.")
        }
        return system.all_ready() and len(uids) == sum(TENANTS.values()) and uids == system.machines() == queues

    wait_until(same, "machines, Workers and queues differ")


def check_nothing_is_left(system: System) -> None:
    """Check that deleted pools leave no object, machine, process, queue or broker user."""
    for tenant in TENANTS:
        path = f"/apis/{names.API_VERSION}/namespaces/{tenant}/{names.WORKER_POOLS.plural}/{POOL}"
        assert system.api.request("DELETE", path).accepted

    def left() -> list[object]:
        prefixes = ("simyard.worker.", "simyard.pool.", "pool-", "worker-")
        at_broker = [
            name for kind in ("queues", "users") for name in system.broker_names(kind) if name.startswith(prefixes)
        ]
        return [*system.list(names.WORKER_POOLS), *system.list(names.WORKERS), *system.machines(), *system.adapters(),
                *at_broker]  # fmt: skip

    wait_until(lambda: not left(), "something is left of the pools")


def ending(action: Json) -> str:
    """Return ``Succeeded``, the reason of the failure, or "" while the action has not ended."""
    for condition in (action.get("status") or {}).get("conditions") or []:
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return str(condition["reason"])
    return ""
