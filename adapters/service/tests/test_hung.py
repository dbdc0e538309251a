# SPDX-License-Identifier: Apache-2.0
"""An action that ignores its stop: its adapter ends, and the next adapter does what waited."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from simyard_adapter.adapter import Adapter
from simyard_adapter.errors import HungError
from simyard_adapter.wire import Event

Service = Any


async def test_an_adapter_whose_action_does_not_end_ends_itself_and_its_successor_goes_on(
    service: Service, tmp_path: Path, work: Any, lines: Any
) -> None:
    await service.add_worker("w1")
    bootstrap, gate = service.bootstrap("w1"), tmp_path / "gate"
    hung = asyncio.ensure_future(Adapter(bootstrap, tmp_path / "w1", hang_seconds=0.5).run())
    await service.event(Event.REGISTER)
    hanging = await service.begin("hang", {"gate": str(gate)})
    waiting = await service.begin("once", work(6))
    assert (await service.result(hanging))["error"]["reason"] == "TimedOut"
    with pytest.raises(HungError, match="hang still runs"):
        await asyncio.wait_for(hung, 240)
    assert lines() == []
    gate.touch()
    successor = Adapter(bootstrap, tmp_path / "w1")
    running = asyncio.ensure_future(successor.run())
    assert (await service.result(waiting))["result"] == {"square": 36}
    successor.stop()
    await asyncio.wait_for(running, 240)
