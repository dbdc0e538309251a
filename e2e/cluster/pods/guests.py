# SPDX-License-Identifier: Apache-2.0
"""Run the guests of machines in a pod that plays a cloud: real adapters, one process each."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import re
import sys
import tempfile
from base64 import b64decode
from pathlib import Path

_PACKED = re.compile(r"SIMYARD_BOOTSTRAP='\n(.*?)\n'", re.DOTALL)


def unpacked(text: str) -> bytes:
    """Return the bootstrap document as the start script of a guest unpacks it."""
    return gzip.decompress(b64decode(text))


def document_in(user_data: str) -> bytes:
    """Return the bootstrap document that user data contains."""
    found = _PACKED.search(user_data)
    if found is None:
        raise ValueError("the user data contains no bootstrap document")
    return unpacked(found[1])


class Guests:
    """The running guests by the id of their machine."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[None]] = {}

    def ids(self) -> set[str]:
        """The ids of the machines whose guests run."""
        return set(self._running)

    def run(self, machine_id: str, document: bytes, *identity: str) -> None:
        """Start a guest; ``identity`` holds the arguments by which the adapter knows its worker."""
        self._running[machine_id] = asyncio.create_task(self._keep(machine_id, document, identity), name=machine_id)

    async def end(self, machine_id: str) -> None:
        """Stop a guest."""
        task = self._running.pop(machine_id)
        task.cancel()
        await asyncio.wait([task])

    async def _keep(self, machine_id: str, document: bytes, identity: tuple[str, ...]) -> None:
        """Restart a guest that ends, as a service manager does."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "bootstrap.json"
            file.write_bytes(document)
            arguments = ["run", "--bootstrap", str(file), "--directory", f"{folder}/adapter", *identity]
            while True:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "simyard_adapter", *arguments, cwd=folder
                )
                try:
                    print(f"the guest of {machine_id} has ended with {await process.wait()}", flush=True)
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
                await asyncio.sleep(1)
