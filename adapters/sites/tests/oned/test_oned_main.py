"""The simulator as a process of its own."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pyone


async def test_it_prints_its_url_serves_and_ends_when_told(tmp_path: Path, blocking: Any) -> None:
    auth = tmp_path / "auth"
    auth.write_text("someone:pass\n")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "simyard_sites.testing.oned", "--listen", "127.0.0.1:0", "--auth-file", str(auth),
        "--scheduler", "wide", "--cost-scale", "0", "--finished", "100", "--fail", "boot=0.5", "--version", "6.10.0",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            url = (await process.stdout.readline()).decode().strip()
        client = pyone.OneServer(url, session="someone:pass")
        assert await blocking(client.system.version) == "6.10.0"
        assert await blocking(client.template.instantiate, 0, "vm") == 100
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await process.wait() == 0
