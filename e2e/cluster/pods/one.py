# SPDX-License-Identifier: Apache-2.0
"""Run a simulated oned and the guests of its machines in a pod; no part of it is OpenNebula."""

from __future__ import annotations

import asyncio

from guests import Guests, unpacked

from simyard_simulators.oned import WIDE, Lcm, Oned, Settings, State, Vm

PORT = 2633
LOOK_SECONDS = 0.2
SETTINGS = Settings(version="7.0.0-simulated", scheduler=WIDE, time_scale=0.1)


def runs(vm: Vm) -> bool:
    return vm.state is State.ACTIVE and vm.lcm is Lcm.RUNNING


async def run_guests(oned: Oned) -> None:
    """Keep exactly the guests of the running machines running."""
    guests = Guests()
    while True:
        oned.cloud.advance()
        running = {str(oid): vm for oid, vm in oned.cloud.vms.items() if runs(vm)}
        for gone in guests.ids() - running.keys():
            await guests.end(gone)
        for oid in running.keys() - guests.ids():
            [context] = running[oid].template.vectors("CONTEXT")
            guests.run(oid, unpacked(dict(context)["SIMYARD_BOOTSTRAP"]))
        await asyncio.sleep(LOOK_SECONDS)


async def main() -> None:
    async with Oned(SETTINGS, host="0.0.0.0", port=PORT) as oned:
        print(oned.url, flush=True)
        await run_guests(oned)


if __name__ == "__main__":
    asyncio.run(main())
