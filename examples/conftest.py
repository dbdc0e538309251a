# SPDX-License-Identifier: Apache-2.0
"""Test support: a worker of an example without a broker, whose connector is loaded as the service adapter loads it."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from simyard_adapter.backend import BackendEnvironment
from simyard_adapter.bootstrap import Bootstrap, BrokerAddress
from simyard_adapter.context import Context
from simyard_adapter.declarations import Interface, Json, Value, check_values
from simyard_adapter.loading import make_backend, write_files
from simyard_dev.packages import ensure_packages

_NO_BROKER = BrokerAddress(host="", port=0, vhost="", username="", password="")


class ExampleWorker:
    """A worker that runs the actions of a manifest's connector.

    Attributes:
        interface: The interface in the manifest.
        running: The running invocations.
        progress: The percentages that actions have reported.
    """

    def __init__(self, manifest: Path, directory: Path) -> None:
        spec = yaml.safe_load(manifest.read_text())["spec"]
        self.interface = Interface.from_json(spec["interface"])
        self.running: list[Context] = []
        self.progress: list[float] = []
        self._numbers = itertools.count(1)
        self._directory = directory
        self._changed = asyncio.Event()
        files = {item["path"]: item["content"] for item in spec["connector"].get("files", [])}
        write_files(files, directory)
        bootstrap = Bootstrap(
            "default", "worker", "uid", "service", "", _NO_BROKER, self.interface, spec["connector"], files
        )
        self._backend = make_backend(bootstrap, directory)

    async def start(self) -> None:
        """Start the connector."""
        loop = asyncio.get_running_loop()

        def notice() -> None:
            loop.call_soon_threadsafe(self._changed.set)

        self._backend.attributes.add_listener(notice)
        log = logging.LoggerAdapter(logging.getLogger("example"))
        await self._backend.start(BackendEnvironment(self._directory, log, lambda: list(self.running), {}))

    async def stop(self) -> None:
        """Stop the connector."""
        await self._backend.stop()

    @property
    def attributes(self) -> dict[str, Json]:
        """The values of the attributes."""
        return self._backend.attributes.get_values()

    async def until(self, condition: Callable[[dict[str, Json]], bool]) -> None:
        """Wait until the attributes fulfil a condition, for at most 60 s."""
        async with asyncio.timeout(60):
            while not condition(self.attributes):
                self._changed.clear()
                await self._changed.wait()

    async def call(self, name: str, **parameters: Any) -> dict[str, Any]:
        """Call an action; check parameters and result against the interface, as the platform does.

        Files are paths here: there is no file store to upload them to.
        """
        action = self.interface.find_action(name)
        assert action is not None
        checked = _check(parameters, action.parameters, "parameters")
        scratch = self._directory / f"invocation-{next(self._numbers)}"
        context = Context(scratch.name, name, scratch, self._keep_progress, lambda text: None)
        self.running.append(context)
        try:
            result: Mapping[str, Any] = await self._backend.invoke(context, checked)
        finally:
            self.running.remove(context)
        return _check(result, action.result, "result")

    def _keep_progress(self, context: Context) -> None:
        progress = context.collect_progress()
        if progress is not None and progress.percent is not None:
            self.progress.append(progress.percent)


def _check(values: Mapping[str, Any], declared: Iterable[Value], path: str) -> dict[str, Any]:
    """Check all values but the files."""
    files = {item.name: values[item.name] for item in declared if item.holds_files and item.name in values}
    others = {name: value for name, value in values.items() if name not in files}
    return check_values(others, [item for item in declared if not item.holds_files], path) | files


@pytest.fixture(scope="session")
def solver() -> None:
    """Install the examples' program if it is missing."""
    ensure_packages(["calculix-ccx"])


@pytest.fixture
async def start_worker(solver: None, tmp_path: Path) -> AsyncIterator[Callable[[Path], Awaitable[ExampleWorker]]]:
    """Yield a function that starts a worker of the service in a manifest; stop the workers after the test."""
    started: list[ExampleWorker] = []

    async def start(manifest: Path) -> ExampleWorker:
        worker = ExampleWorker(manifest, tmp_path)
        await worker.start()
        started.append(worker)
        return worker

    yield start
    for worker in started:
        await worker.stop()
