# SPDX-License-Identifier: Apache-2.0
"""The simulator as a process of its own."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pyone
import pytest


async def test_it_prints_its_url_serves_and_ends_when_told(tmp_path: Path, blocking: Any) -> None:
    auth = tmp_path / "auth"
    auth.write_text("someone:pass\n")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "simyard_simulators.oned", "--listen", "127.0.0.1:0", "--auth-file", str(auth),
        "--scheduler", "wide", "--cost-scale", "0", "--finished", "100", "--fail", "boot=0.5", "--version", "6.10.0",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(240):
            url = (await process.stdout.readline()).decode().strip()
        client = pyone.OneServer(url, session="someone:pass")
        assert await blocking(client.system.version) == "6.10.0"
        assert await blocking(client.template.instantiate, 0, "vm") == 100
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(240):
            assert await process.wait() == 0


async def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "simyard_simulators.oned", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(240):
        out, said = await process.communicate()
    return process.returncode or 0, out.decode(), said.decode()


async def test_its_help_names_every_argument_with_its_default() -> None:
    code, out, _ = await run("--help")
    assert code == 0
    for text in ("--listen ADDRESS:PORT", "(default: 127.0.0.1:2633)", "--fail STEP=SHARE", "prolog, boot", "`worker`"):
        assert text in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--listen", "2633"], "'2633' is not ADDRESS:PORT"),
        (["--listen", "127.0.0.1:70000"], "is not ADDRESS:PORT"),
        (["--fail", "lunch=1"], "'lunch' is not a step; the steps are prolog"),
        (["--fail", "boot=2"], "'2' is not a share from 0 to 1"),
        (["--fail", "boot=much"], "'much' is not a number"),
        (["--time-scale", "0"], "'0' is not a number above 0"),
        (["--cost-scale", "-1"], "'-1' is not a number from 0"),
        (["--hosts", "-1"], "'-1' is not a whole number from 0"),
        (["--auth-file", "/nowhere"], "/nowhere"),
        (["--auth-file", os.devnull], "the file does not contain USER:PASSWORD"),
        (["--tls-certificate", "/nowhere"], "--tls-certificate"),
        (["--tls-certificate", os.devnull], "--tls-certificate"),
        (["--tls-key", "/nowhere"], "--tls-key needs --tls-certificate"),
    ],
)
async def test_an_argument_that_cannot_be_used_is_said_with_the_usage(arguments: list[str], says: str) -> None:
    code, _, said = await run(*arguments)
    assert code == 2
    assert says in said
    assert said.startswith("usage: python -m simyard_simulators.oned")
    assert "Traceback" not in said


async def test_a_port_that_somebody_has_is_said_to_be_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, said = await run("--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert code == 1
    assert "cannot listen on 127.0.0.1:" in said
    assert "Traceback" not in said
