"""In a pod that plays a cloud: the guests of its machines are real adapters, one process each."""

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
    """The bootstrap document as the start script of a guest unpacks it."""
    return gzip.decompress(b64decode(text))


def document_in(user_data: str) -> bytes:
    """The bootstrap document that user data brings."""
    found = _PACKED.search(user_data)
    if found is None:
        raise ValueError("the user data brings no bootstrap document")
    return unpacked(found[1])


class Guests:
    """The guests that run, by the id of their machine."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[None]] = {}

    def ids(self) -> set[str]:
        """The machines whose guests run."""
        return set(self._running)

    def run(self, machine_id: str, document: bytes, *identity: str) -> None:
        """Start a guest; ``identity`` are the adapter's arguments that say which worker it is."""
        self._running[machine_id] = asyncio.create_task(self._keep(machine_id, document, identity), name=machine_id)

    async def end(self, machine_id: str) -> None:
        """End a guest."""
        task = self._running.pop(machine_id)
        task.cancel()
        await asyncio.wait([task])

    async def _keep(self, machine_id: str, document: bytes, identity: tuple[str, ...]) -> None:
        """As a service manager does: what ends is started again."""
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
