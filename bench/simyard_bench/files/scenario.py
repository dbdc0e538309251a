# SPDX-License-Identifier: Apache-2.0
"""Run the cases one after the other, and collect their figures.

In each round, the clients take turns: the bare client, `kubectl simyard cp`, and a worker. Each upload has new content,
so that the client really sends it. A download through the platform gets the file of the upload before it.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from simyard_bench import machine, modules
from simyard_bench.files import client
from simyard_bench.files.actions import Actions
from simyard_bench.files.client import Access, Order, Report
from simyard_bench.files.rows import MIB, Case, Figures, Way
from simyard_bench.files.watching import STORE, Watch, count_downloads
from simyard_bench.workload import NAMESPACE
from simyard_bench.world import GUESTS, World
from simyard_dev import tools
from simyard_dev.errors import SetupError
from simyard_dev.progress import say

SIZES = (1000, 64 * 2**10, MIB, 16 * MIB, 64 * MIB, 256 * MIB, 2**31)
LARGE = 10**10
"""The size of the file that shows the adapter's memory: 10 GB."""
SHARED_SIZE = 64 * MIB
SHARED_ACTIONS = 200
SHARED_WORKERS = 4
SMALL = MIB
SMALL_FILES = 10
"""The number of files in a round, up to the size SMALL, because one small file needs less CPU than a clock tick."""
_BLOCK = MIB


@dataclass
class Round:
    """The costs of the files of one round."""

    seconds: list[float] = field(default_factory=list)
    client_cpu_s: float = 0.0
    rss_mib: float = 0.0
    addresses: list[str] = field(default_factory=list)
    round_trips: int = 0
    store_requests: int = 0
    cpu_s: dict[str, float] = field(default_factory=dict)

    def add(self, report: Report) -> None:
        """Add the transfer of a client."""
        self.seconds.append(report.seconds)
        self.client_cpu_s += report.cpu_s
        self.rss_mib = max(self.rss_mib, report.rss_mib)
        self.addresses.append(report.address)


class ClientProcess:
    """A client in a separate process."""

    def __init__(self, way: Way, access: Access) -> None:
        environment = dict(modules.environment())
        kubectl = tools.ensure(["kubectl"])["kubectl"]
        environment["PATH"] = f"{kubectl.parent}{os.pathsep}{environment['PATH']}"
        self._process = subprocess.Popen(
            [*modules.command(client), way.value],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._send(access.model_dump_json())

    def carry_out(self, order: Order) -> Report:
        """Carry out an order.

        Raises:
            SetupError: the client has ended.
        """
        self._send(order.model_dump_json())
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SetupError(f"the client has ended with {self._process.wait()}")
        return Report.model_validate_json(line)

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()


class Scenario:
    """The cases on one platform, whose pool has one worker."""

    def __init__(self, world: World, directory: Path, rounds: int) -> None:
        self._world = world
        self._rounds = rounds
        self._source, self._target = directory / "source", directory / "target"
        self._contents = 0
        self._actions = Actions(world)
        self._watch = Watch(world)
        self._watch.measure_idle()
        environment = world.environment
        access = Access(secrets=environment.files.access, kubeconfig=environment.kubeconfig, namespace=NAMESPACE)
        self._clients = {way: ClientProcess(way, access) for way in client.CLIENTS}

    def close(self) -> None:
        """End the clients."""
        for process in self._clients.values():
            process.stop()

    def transfer(self, size: int) -> list[Figures]:
        """Measure uploads and downloads of a size by all clients."""
        files = SMALL_FILES if size <= SMALL else 1
        _write_random(self._source, size)
        found: dict[tuple[Case, Way], list[Round]] = {(case, way): [] for way in Way for case in list(Case)[:2]}
        for _ in range(self._rounds):
            for way in self._clients:
                sent = self._upload(way, files)
                found[Case.UPLOAD, way].append(sent)
                found[Case.DOWNLOAD, way].append(self._download(way, sent.addresses))
                if way is Way.USER:
                    found[Case.DOWNLOAD, Way.WORKER].append(self._take(sent.addresses))
                self._delete(way, sent.addresses)
            made = self._give(files)
            found[Case.UPLOAD, Way.WORKER].append(made)
            self._delete(Way.USER, made.addresses)
        return [self._summarise(case, way, size, rounds) for (case, way), rounds in found.items()]

    def transfer_large(self, size: int) -> list[Figures]:
        """Measure a sparse file that is much larger than the memory of an adapter."""
        self._source.unlink(missing_ok=True)
        with self._source.open("xb") as file:
            file.truncate(size)
        made = self._give(1)
        sent = self._summarise(Case.UPLOAD, Way.WORKER, size, [made])
        received = self._summarise(Case.DOWNLOAD, Way.WORKER, size, [self._take(made.addresses)])
        self._delete(Way.USER, made.addresses)
        return [sent, received]

    def share(self, size: int, actions: int, workers: int) -> Figures:
        """Measure actions that share one input."""
        _write_random(self._source, size)
        [address] = self._upload(Way.USER, 1).addresses
        load = os.getloadavg()[0]
        with self._measure() as done:
            ended = self._actions.call_all("take", [_make_input(address)] * actions)
            downloads = count_downloads(self._watch.requests(), address)
        seconds = max(each.seen for each in ended) - min(each.asked for each in ended)
        say(f"{actions} actions, {workers} workers: {seconds:.2f} s, {downloads} downloads of the input")
        return Figures(
            case=Case.SHARED,
            way=Way.WORKER,
            size=size,
            files=actions,
            seconds=round(seconds, 3),
            rounds_s=[round(seconds, 3)],
            round_trips=done.round_trips / actions,
            store_requests=done.store_requests / actions,
            client_cpu_s=round(done.cpu_s.pop(GUESTS) / actions, 4),
            cpu_s={name: round(cpu / actions, 4) for name, cpu in done.cpu_s.items()},
            rss_mib=round(self._adapter_rss_mib(), 1),
            store_rss_mib=round(self._watch.store_rss_mib, 1),
            workers=workers,
            downloads=downloads,
            load_average=load,
        )

    @contextmanager
    def _measure(self) -> Iterator[Round]:
        """Yield a round that counts requests and CPU of the block; before large files, wait for the disk."""
        if self._source.stat().st_size > SMALL:
            os.sync()
        done = Round()
        self._watch.reset()
        yield done
        done.cpu_s = self._watch.cpu_seconds()
        done.round_trips, done.store_requests = self._watch.round_trips(), len(self._watch.requests())

    def _upload(self, way: Way, files: int) -> Round:
        with self._measure() as done:
            for _ in range(files):
                self._change_content()
                done.add(self._clients[way].carry_out(Order(work="upload", path=self._source)))
        return done

    def _download(self, way: Way, addresses: Iterable[str]) -> Round:
        with self._measure() as done:
            for address in addresses:
                done.add(self._clients[way].carry_out(Order(work="download", path=self._target, address=address)))
                self._target.unlink()
        return done

    def _take(self, addresses: Iterable[str]) -> Round:
        with self._measure() as done:
            for address in addresses:
                ended = self._actions.call("take", _make_input(address))
                done.seconds.append(ended.result["began"] - ended.asked)
        return self._complete(done)

    def _give(self, files: int) -> Round:
        with self._measure() as done:
            for _ in range(files):
                self._change_content()
                ended = self._actions.call("give", {"path": str(self._source)})
                done.seconds.append(ended.seen - ended.result["ended"])
                done.addresses.append(ended.result["output"]["file"])
        return self._complete(done)

    def _complete(self, done: Round) -> Round:
        done.rss_mib = self._adapter_rss_mib()
        done.client_cpu_s = done.cpu_s.pop(GUESTS)
        return done

    def _delete(self, way: Way, addresses: Iterable[str]) -> None:
        for address in addresses:
            self._clients[way].carry_out(Order(work="delete", path=self._source, address=address))

    def _change_content(self) -> None:
        self._contents += 1
        with self._source.open("r+b") as file:
            file.write(f"{time.time_ns()} {self._contents}".encode())

    def _adapter_rss_mib(self) -> float:
        pids = machine.find_processes(b"--bootstrap", str(self._world.platform.emulated).encode())
        return max(map(machine.peak_rss_mib, pids))

    def _summarise(self, case: Case, way: Way, size: int, rounds: Sequence[Round]) -> Figures:
        files = len(rounds[0].seconds)

        def each(figures: Iterable[float]) -> float:
            return round(median(figures) / files, 5)

        figures = Figures(
            case=case,
            way=way,
            size=size,
            files=files,
            seconds=round(median(median(done.seconds) for done in rounds), 5),
            rounds_s=[round(median(done.seconds), 5) for done in rounds],
            round_trips=each(done.round_trips for done in rounds),
            store_requests=each(done.store_requests for done in rounds),
            client_cpu_s=each(done.client_cpu_s for done in rounds),
            cpu_s={name: each(done.cpu_s[name] for done in rounds) for name in rounds[0].cpu_s if name != GUESTS},
            rss_mib=round(max(done.rss_mib for done in rounds), 1),
            store_rss_mib=round(self._watch.store_rss_mib, 1),
            load_average=os.getloadavg()[0],
        )
        say(
            f"{case} by {way}, {size} bytes: {1000 * figures.seconds:.1f} ms, {figures.rate:.2f} MiB/s,"
            f" CPU {figures.client_cpu_s:.3f} s and {figures.cpu_s[STORE]:.3f} s of the store,"
            f" {figures.rss_mib:.0f} MiB; {figures.round_trips:g} round trips; load {figures.load_average:.1f}"
        )
        return figures


def _make_input(address: str) -> dict[str, object]:
    return {"input": {"file": address, "name": "input"}}


def _write_random(path: Path, size: int) -> None:
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        for offset in range(0, size, _BLOCK):
            file.write(os.urandom(min(_BLOCK, size - offset)))
