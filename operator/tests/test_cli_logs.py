# SPDX-License-Identifier: Apache-2.0
"""The log of an action: stored parts first, then the lines of the worker, each line once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simyard.api.base import Json
from simyard.cli.kubectl import Kubectl, KubectlError
from simyard.cli.logs import ActionLog
from simyard.cli.output import Failure
from simyard_sites.kubernetes.resource import Resource


class Run:
    """One run of an action: its lines, the sizes of its stored parts, and its worker."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.stored: list[int] = []
        """The number of lines of each part."""
        self.worker = "w1"
        self.reachable = True
        self.finished = False
        self.attempts = 1


class Cluster(Kubectl):
    """A cluster with one action; ``steps`` happen one after the other, each when a follower asks or waits again."""

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "run", Run())
        object.__setattr__(self, "steps", [])
        object.__setattr__(self, "files", {})

    run: Run
    steps: list[Any]
    files: dict[str, bytes]

    def step(self, *_: object) -> None:
        if self.steps:
            self.steps.pop(0)()

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        run, parts, start = self.run, [], 0
        for count in run.stored:
            content = "".join(run.lines[start : start + count]).encode()
            start += count
            address = f"sha256:{hashlib.sha256(content).hexdigest()}"
            self.files[address] = content
            parts.append({"file": address, "bytes": len(content)})
        condition = {"type": "Complete", "status": "True" if run.finished else "False", "reason": "Succeeded"}
        times = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
        return {
            "metadata": {"name": name, "namespace": "lab", "uid": "uid"},
            "spec": {"target": {"kind": "WorkerPool", "name": "pool"}, "action": "solve"},
            "status": {
                "worker": run.worker,
                "attempts": run.attempts,
                "log": parts,
                "conditions": [{**condition, **times}],
            },
        }

    def stream_subresource(self, resource: Resource, name: str, path: str) -> Iterator[str]:
        assert name == self.run.worker
        if not self.run.reachable:
            raise KubectlError("the worker is gone", 1)
        query = dict(word.split("=") for word in path.partition("?")[2].split("&"))
        content = "".join(self.run.lines).encode()[int(query["after"]) :]
        yield from content.decode().splitlines(keepends=True)
        if query.get("follow") == "true":
            known = len(self.run.lines)
            self.step()
            yield from self.run.lines[known:]


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.run.lines = [f"line {number}\n" for number in range(6)]
    return made


def read(cluster: Cluster) -> ActionLog:
    return ActionLog(
        cluster, "solve-1", fetch=lambda address, path: _write(path, cluster.files[address]), sleep=cluster.step
    )


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def follow(cluster: Cluster) -> list[str]:
    log = read(cluster)
    return [*log.read_present(wait=True), *log.follow()]


@pytest.mark.parametrize("stored", [[], [2], [2, 1], [6]])
def test_the_lines_of_a_running_action_come_from_its_parts_and_then_from_its_worker(
    cluster: Cluster, stored: list[int]
) -> None:
    cluster.run.stored = stored
    assert list(read(cluster).read_present()) == cluster.run.lines


def test_the_log_of_a_finished_action_outlives_its_worker(cluster: Cluster) -> None:
    cluster.run.stored, cluster.run.finished, cluster.run.reachable = [4, 2], True, False
    assert list(read(cluster).read_present()) == cluster.run.lines


def test_a_running_action_whose_worker_cannot_be_reached_is_an_error_after_its_stored_lines(cluster: Cluster) -> None:
    cluster.run.stored, cluster.run.reachable = [2], False
    lines = read(cluster).read_present()
    assert [next(lines), next(lines)] == cluster.run.lines[:2]
    with pytest.raises(KubectlError):
        next(lines)


def test_an_action_that_no_worker_has_begun_has_no_log_yet(cluster: Cluster) -> None:
    cluster.run.worker = ""
    with pytest.raises(Failure, match="has no log yet"):
        list(read(cluster).read_present())


def test_a_follower_sees_each_line_once_whatever_happens_meanwhile(cluster: Cluster) -> None:
    run = cluster.run

    def write(*lines: str) -> None:
        run.lines += [f"{line}\n" for line in lines]

    def end() -> None:
        run.finished = True

    cluster.steps += [
        lambda: write("a", "b"),  # while the log is followed
        lambda: run.stored.extend([3, 4]),  # the stream was cut; parts are stored, also with lines that were shown
        lambda: write("c"),
        lambda: run.stored.__setitem__(slice(None), [9]),  # many parts became one
        lambda: write("d"),
        lambda: setattr(run, "reachable", False),  # the worker is away for a moment
        lambda: setattr(run, "reachable", True),
        end,
        lambda: write("e"),
        lambda: run.stored.append(2),
    ]
    shown = follow(cluster)
    assert shown == run.lines[: len(shown)]
    assert shown[:10] == [*(f"line {number}\n" for number in range(6)), "a\n", "b\n", "c\n", "d\n"]


def test_a_follower_waits_for_a_worker_and_follows_the_next_run(cluster: Cluster) -> None:
    run = cluster.run
    run.worker, run.lines = "", []

    def begin(worker: str) -> None:
        run.worker, run.attempts, run.lines, run.stored = worker, run.attempts + 1, [f"on {worker}\n"], []

    cluster.steps += [
        lambda: None,
        lambda: begin("w1"),
        lambda: None,
        lambda: begin("w2"),
        lambda: setattr(run, "finished", True),
    ]
    assert follow(cluster) == ["on w1\n", "on w2\n"]


def test_one_follower_sees_the_whole_life_of_an_action(cluster: Cluster) -> None:
    run = cluster.run
    run.worker, run.lines = "", []

    def begin() -> None:
        run.worker, run.lines = "w1", ["begin\n"]

    def end() -> None:  # the worker is gone at once, and its log is in the store
        run.finished, run.reachable, run.stored = True, False, [1, 2]

    cluster.steps += [
        lambda: None,  # no worker is free
        begin,
        lambda: run.lines.append("half\n"),  # while the log is followed
        lambda: run.lines.append("end\n"),
        lambda: setattr(run, "stored", [1]),
        end,
    ]
    assert follow(cluster) == ["begin\n", "half\n", "end\n"]
    assert not cluster.steps


def test_control_sequences_in_a_stored_log_are_not_printed(cluster: Cluster) -> None:
    cluster.run.lines, cluster.run.stored = ["\x1b[31mred\n"], [1]
    assert list(read(cluster).read_present()) == ["red\n"]
