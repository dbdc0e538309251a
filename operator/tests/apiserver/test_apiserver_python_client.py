# SPDX-License-Identifier: Apache-2.0
"""The Python client with a real kube-apiserver, a real worker and a real S3 server."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from apiserver_stack import Running, Stack

import simyard_client
from kube_api import wait_until
from simyard.api import names
from simyard_client import Client, Pool
from simyard_client.paths import LABEL_BATCH
from simyard_client.transfer.digests import digest_file

pytestmark = pytest.mark.xdist_group("apiserver")
PATIENCE_SECONDS = 240


@pytest.fixture
def python_client(stack: Stack, running: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.delenv("SIMYARD_FILES_CA_FILE", raising=False)
    with simyard_client.connect(
        stack.control_plane.kubeconfig, namespace=running.namespace, patience_seconds=PATIENCE_SECONDS
    ) as client:
        yield client


@pytest.fixture
def pool(python_client: Client, running: Running) -> Pool:
    return python_client.pool(running.pool)


def test_a_method_calls_an_action(pool: Pool, running: Running) -> None:
    result = pool.solve(length=4)
    assert (result.twice, dict(result), result.worker) == (8, {"twice": 8}, running.worker.name)
    assert "twice: number" in (pool.solve.__doc__ or "")
    assert "solve" in dir(pool)


def test_calls_of_a_batch_are_futures_of_both_kinds(pool: Pool) -> None:
    batch = pool.map("solve", [{"length": length} for length in range(30)], label="many")
    done = {future.index for future in concurrent.futures.as_completed(batch, PATIENCE_SECONDS)}
    assert done == set(range(30))
    assert [result.twice for result in batch.results()] == [2 * length for length in range(30)]

    async def gather() -> list[float]:
        return [result.twice for result in await asyncio.gather(*(pool.submit("solve", length=n) for n in (1, 2)))]

    assert asyncio.run(gather()) == [2, 4]


@pytest.mark.parametrize(
    ("action", "parameters", "error", "fields"),
    [
        ("solve", {"length": -1}, simyard_client.InvalidParametersError, ["parameters.length"]),
        ("inspect_deck", {"deck": "x"}, simyard_client.InvalidParametersError, ["parameters.deck"]),
        ("refuse", {}, simyard_client.ActionFailedError, []),
        ("crash", {}, simyard_client.ConnectorCrashedError, []),
        ("overrun", {}, simyard_client.TimedOutError, []),
        ("melt", {}, simyard_client.NotFoundError, []),
    ],
)
def test_each_reason_has_its_error(
    pool: Pool, action: str, parameters: dict[str, object], error: type[Exception], fields: list[str]
) -> None:
    with pytest.raises(error) as caught:
        pool.call(action, **parameters)
    assert isinstance(caught.value, simyard_client.SimyardError)
    assert list(caught.value.fields) == fields


def test_another_process_finds_a_durable_batch(
    stack: Stack, running: Running, python_client: Client, pool: Pool
) -> None:
    batch = pool.map("solve", [{"length": length} for length in range(3)], durable=True)
    label = f"{LABEL_BATCH}={batch.id}"

    def stored() -> list[str]:
        path = "jsonpath={.items[*].metadata.name}"
        return stack.kubectl("get", "serviceactions", "-n", running.namespace, "-l", label, "-o", path).split()

    wait_until(lambda: len(stored()) == 3)
    python_client.close()
    assert {type(future.exception(PATIENCE_SECONDS)) for future in batch} == {simyard_client.ClosedError}
    with simyard_client.connect(stack.control_plane.kubeconfig, namespace=running.namespace) as other:
        found = other.batch(batch.id)
        assert [future.parameters for future in found] == [{"length": length} for length in range(3)]
        end(stack, running, found[0].action, {"result": {"twice": 0}, "worker": "pool-0"}, "Complete")
        end(stack, running, found[1].action, {"failure": {"reason": "ActionFailed", "message": "no"}}, "Failed")
        stack.kubectl("delete", "serviceaction", found[2].action, "-n", running.namespace)
        first, second, third = found.results(errors="return", timeout=PATIENCE_SECONDS)
    assert isinstance(first, simyard_client.Result)
    assert (first.twice, first.worker, first.action) == (0, "pool-0", found[0].action)
    assert isinstance(second, simyard_client.ActionFailedError)
    assert isinstance(third, simyard_client.ActionError)
    assert "was deleted" in str(third)


def end(stack: Stack, running: Running, name: str, status: dict[str, object], kind: str) -> None:
    """End an action, as the operator does."""
    condition = {
        "type": kind,
        "status": "True",
        "reason": "Ended",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    resource = names.SERVICE_ACTIONS
    stack.status(resource, running.namespace, name, {**status, "conditions": [condition]})


def test_files_go_up_and_down(python_client: Client, tmp_path: Path) -> None:
    deck = tmp_path / "deck.inp"
    deck.write_bytes(os.urandom(100_000))
    uploaded = python_client.upload(deck)
    assert uploaded.address == digest_file(deck).address
    assert python_client.upload(deck) == uploaded
    folder = tmp_path / "copies"
    folder.mkdir()
    copy = uploaded.download(folder)
    assert (copy.name, copy.read_bytes()) == ("deck.inp", deck.read_bytes())
    with pytest.raises(FileExistsError):
        uploaded.download(folder)
    assert python_client.files().get_column("address") == [uploaded.address]
    python_client.delete_file(uploaded.address)
    with pytest.raises(simyard_client.NotFoundError):
        uploaded.read_bytes()


def test_logs_and_attributes_of_a_worker(pool: Pool) -> None:
    pool.solve(length=7)
    worker = pool.worker(0)
    assert any("solving 7" in line for line in worker.logs())
    follower = worker.logs(follow=True)
    assert next(follower)
    follower.close()  # type: ignore[attr-defined]
    worker.set_attribute("load", 20)
    loads = {row["attribute"]: (row["value"], row["unit"]) for row in worker.attributes(fresh=True)}
    assert loads["load"] == (20, "N")


def test_a_user_without_rights_is_told_so(stack: Stack, running: Running, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    stack.control_plane.write_service_account_kubeconfig(kubeconfig, running.namespace, "default")
    with simyard_client.connect(kubeconfig, namespace=running.namespace) as stranger:
        with pytest.raises(simyard_client.ForbiddenError):
            stranger.pools()
        with pytest.raises(simyard_client.ForbiddenError):
            stranger.pool(running.pool).call("solve")
