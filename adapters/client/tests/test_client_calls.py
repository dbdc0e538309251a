# SPDX-License-Identifier: Apache-2.0
"""Calls: an action that may have run is never called again, and a batch is bounded."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import threading
from typing import Any

import pytest
from aiohttp import web
from fake_server import INTERFACE, FakeServer, make_status

import simyard_client
from simyard_client import Client


class Platform:
    """A pool with some ready workers; the action doubles a length."""

    def __init__(self, server: FakeServer, workers: int = 3) -> None:
        self.workers = workers
        self.refusals: list[web.Response | None] = []
        """The first answers to calls; None cuts the connection."""
        self.calls = 0
        self.running = 0
        self.most = 0
        self.released = threading.Event()
        self.released.set()
        server.answer = self.answer

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            return await self.call(request)
        if request.path.startswith("/apis/subresources"):
            return web.json_response({"service": "beam", "interface": INTERFACE})
        return web.json_response({"spec": {}, "status": {"readyReplicas": self.workers}})

    async def call(self, request: web.Request) -> web.StreamResponse:
        self.calls += 1
        if self.refusals:
            refusal = self.refusals.pop(0)
            if refusal is None:
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            return refusal
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.to_thread(self.released.wait)
        length = (await request.json())["parameters"]["length"]
        await asyncio.sleep(0)
        self.running -= 1
        return web.json_response({"result": {"twice": 2 * length}, "worker": "pool-0", "seconds": 0.001})


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (make_status(503, "ServiceUnavailable"), simyard_client.NoAnswerError),
        (make_status(504, "Timeout"), simyard_client.NoAnswerError),
        (make_status(500, "InternalError"), simyard_client.NoAnswerError),
        (None, simyard_client.NoAnswerError),
        (make_status(422, "Invalid", causes=[{"field": "parameters.length"}]), simyard_client.InvalidParametersError),
        (make_status(422, "Interrupted"), simyard_client.InterruptedActionError),
        (make_status(403, "Forbidden"), simyard_client.ForbiddenError),
    ],
)
def test_a_call_that_may_have_run_is_not_repeated(
    server: FakeServer, client: Client, refusal: web.Response | None, error: type[Exception]
) -> None:
    platform = Platform(server)
    platform.refusals = [refusal]
    with pytest.raises(error):
        client.pool("beams").solve(length=1)
    assert platform.calls == 1


@pytest.mark.parametrize(
    "refusal",
    [
        make_status(503, "ServiceUnavailable", retryAfterSeconds=0),
        make_status(429, "TooManyRequests", retryAfterSeconds=0),
        make_status(429, "TooManyRequests"),
    ],
)
def test_a_call_that_did_not_run_is_repeated(server: FakeServer, client: Client, refusal: web.Response) -> None:
    platform = Platform(server)
    platform.refusals = [refusal]
    assert client.pool("beams").solve(length=2).twice == 4
    assert platform.calls == 2


def test_the_patience_for_a_worker_ends(server: FakeServer) -> None:
    platform = Platform(server)
    platform.refusals = [make_status(503, "ServiceUnavailable", "0 workers", retryAfterSeconds=1) for _ in range(9)]
    with (
        simyard_client.connect(url=server.url, patience_seconds=0.1) as client,
        pytest.raises(simyard_client.NoWorkerReadyError, match="0 workers"),
    ):
        client.pool("beams").solve(length=1)
    assert platform.calls == 1


def test_a_call_of_an_idle_pool_is_stored_because_that_wakes_the_pool(server: FakeServer, client: Client) -> None:
    stored: list[Any] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/actions/solve"):
            return make_status(503, "ServiceUnavailable", retryAfterSeconds=9)
        if request.method == "POST":
            done = {"conditions": [{"type": "Complete", "status": "True"}], "result": {"twice": 4}, "worker": "beams-0"}
            stored.append({**(await request.json()), "status": done})
            return web.json_response(stored[-1])
        if request.path.endswith("/serviceactions"):
            event = "".join(json.dumps({"type": "MODIFIED", "object": item}) + "\n" for item in stored)
            listed = {"metadata": {"resourceVersion": "1"}, "items": stored}
            return web.Response(text=event) if "watch" in request.query else web.json_response(listed)
        if request.path.startswith("/apis/subresources"):
            return web.json_response({"service": "beam", "interface": INTERFACE})
        return web.json_response({"status": {"conditions": [{"type": "Available", "reason": "Idle"}]}})

    server.answer = answer
    future = client.pool("beams").submit("solve", length=2)
    assert (future.result(240).twice, future.result().worker) == (4, "beams-0")
    assert future.action == stored[0]["metadata"]["name"]


def test_a_forked_process_has_its_own_connection(server: FakeServer, client: Client) -> None:
    Platform(server)
    pool = client.pool("beams")
    assert pool.solve(length=1).twice == 2
    read, write = os.pipe()
    if (process := os.fork()) == 0:
        try:
            os.write(write, str(pool.solve(length=3).twice).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        assert answer.read() == "6"
    os.waitpid(process, 0)
    assert pool.solve(length=4).twice == 8


def test_a_batch_has_two_calls_for_each_worker_at_a_time(server: FakeServer, client: Client) -> None:
    platform = Platform(server, workers=3)
    batch = client.pool("beams").map("solve", [{"length": n} for n in range(100)])
    assert [result.twice for result in batch.results(timeout=240)] == [2 * n for n in range(100)]
    assert platform.most <= 6


def test_a_batch_gives_each_error_to_its_future(server: FakeServer, client: Client) -> None:
    platform = Platform(server)
    platform.refusals = [make_status(422, "ActionFailed", "jacobian")]
    batch = client.pool("beams").map("solve", [{"length": n} for n in range(5)]).wait(240)
    assert batch.counts == {"unfinished": 0, "succeeded": 4, "failed": 1}
    table = batch.to_table()
    assert table.columns == ("length", "twice", "worker", "seconds", "error")
    assert [error for error in table.get_column("error") if error] == ["ActionFailedError: jacobian"]
    with pytest.raises(simyard_client.ActionFailedError):
        list(batch.results())
    assert table.to_pandas().attrs["units"] == {"twice": "mm"}


def test_a_call_that_was_not_sent_can_be_cancelled(server: FakeServer, client: Client) -> None:
    platform = Platform(server, workers=1)
    platform.released.clear()
    batch = client.pool("beams").map("solve", [{"length": n} for n in range(10)])
    batch[9].cancel()
    platform.released.set()
    batch.wait(240)
    assert batch[9].cancelled()
    assert platform.calls == 9


def test_a_closed_client_ends_its_calls(server: FakeServer, client: Client) -> None:
    platform = Platform(server)
    platform.released.clear()
    batch = client.pool("beams").map("solve", [{"length": n} for n in range(10)])
    client.close()
    assert {type(future.exception(240)) for future in batch} == {simyard_client.ClosedError}
    platform.released.set()
    with pytest.raises(simyard_client.ClosedError):
        client.pools()


def test_endless_inputs_are_taken_as_results_are_asked_for(server: FakeServer, client: Client) -> None:
    Platform(server)
    taken = 0

    def inputs() -> Any:
        nonlocal taken
        while True:
            taken += 1
            yield {"length": taken}

    results = client.pool("beams").imap("solve", inputs(), ahead=8)
    assert [next(results).twice for _ in range(20)] == [2 * n for n in range(1, 21)]
    assert taken <= 20 + 8


def test_futures_are_those_of_concurrent_futures_and_can_be_awaited(server: FakeServer, client: Client) -> None:
    Platform(server)
    batch = client.pool("beams").map("solve", [{"length": n} for n in range(4)])
    done, late = concurrent.futures.wait(batch, 240)
    assert (len(done), len(late)) == (4, 0)

    async def gather() -> list[Any]:
        return [result.twice for result in await asyncio.gather(*batch)]

    assert asyncio.run(gather()) == [0, 2, 4, 6]


def test_a_wait_in_a_callback_is_refused(server: FakeServer, client: Client) -> None:
    Platform(server)
    pool = client.pool("beams")
    found: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def callback(_: Any) -> None:
        try:
            pool.solve(length=1)
        except RuntimeError as error:
            found.set_result(str(error))

    pool.submit("solve", length=1).add_done_callback(callback)
    assert "would never end" in found.result(240)


def test_an_executor_runs_objectives_at_the_same_time(server: FakeServer, client: Client) -> None:
    from scipy.optimize import differential_evolution

    platform = Platform(server, workers=8)
    pool = client.pool("beams")

    def objective(point: Any) -> float:
        return float((pool.solve(length=abs(point[0])).twice - 8) ** 2)

    with pool.executor(threads=8) as executor:
        found = differential_evolution(
            objective, [(0.1, 10)], workers=executor.map, updating="deferred", maxiter=10, rng=1
        )
    assert found.x[0] == pytest.approx(4, abs=0.1)
    assert platform.most > 1


def test_pymoo_evaluates_a_generation_at_the_same_time(server: FakeServer, client: Client) -> None:
    from pymoo.algorithms.soo.nonconvex.de import DE
    from pymoo.core.problem import ElementwiseProblem
    from pymoo.optimize import minimize
    from pymoo.parallelization.starmap import StarmapParallelization

    platform = Platform(server, workers=8)
    pool = client.pool("beams")

    class Beam(ElementwiseProblem):  # type: ignore[misc]
        def _evaluate(self, x: Any, out: dict[str, Any], *_: Any, **__: Any) -> None:
            out["F"] = (pool.solve(length=x[0]).twice - 8) ** 2

    with pool.executor(threads=8) as executor:
        runner = StarmapParallelization(lambda f, points: executor.map(lambda words: f(*words), points))
        problem = Beam(n_var=1, n_obj=1, xl=0.1, xu=10, elementwise_runner=runner)
        found = minimize(problem, DE(pop_size=10), ("n_gen", 10), seed=1)
    assert found.X[0] == pytest.approx(4, abs=0.3)
    assert platform.most > 1
