# SPDX-License-Identifier: Apache-2.0
"""Programs: their output, and their end."""

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from simyard_adapter import programs
from simyard_adapter.context import Context
from simyard_adapter.errors import ActionCancelledError
from simyard_adapter.programs import MAX_OUTPUT_CHARACTERS, Program


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context("id", "solve", tmp_path / "scratch", lambda _: None, lambda _: None)


def test_a_program_gets_its_input_and_gives_its_output(context: Context) -> None:
    seen: list[str] = []
    text = "Ω\n" * 100_000
    done = context.run(["sh", "-c", "pwd; cat; echo end >&2; exit 3"], stdin=text, on_line=seen.append)
    assert done.stdout == f"{context.directory}\n{text}"
    assert (done.returncode, done.stderr, len(seen)) == (3, "end\n", 100_001)


def test_of_a_long_output_the_end_is_kept(context: Context) -> None:
    line = 1 + MAX_OUTPUT_CHARACTERS // 50
    done = context.run([sys.executable, "-c", f"for i in range(100): print(str(i) * {line})"])
    assert done.stdout.endswith("99\n")
    assert len(done.stdout) <= MAX_OUTPUT_CHARACTERS


async def test_what_a_program_leaves_behind_ends_with_it(context: Context, alive: Any, until: Any) -> None:
    done = await asyncio.to_thread(context.run, ["sh", "-c", "sleep 1000 & echo $!"])
    pid = int(done.stdout)
    await until(lambda: not alive(pid))


@pytest.mark.skipif(sys.platform != "linux", reason="found by /proc")
async def test_a_descendant_that_left_the_session_of_its_program_ends_with_it(
    context: Context, alive: Any, until: Any
) -> None:
    script = "setsid sh -c 'sleep 1000 & echo $!; echo > said; wait' & while [ ! -e said ]; do sleep 0.05; done"
    done = await asyncio.to_thread(context.run, ["sh", "-c", script])
    assert done.returncode == 0
    pid = int(done.stdout)
    await until(lambda: not alive(pid))


async def test_a_program_that_ignores_the_request_to_end_is_killed(
    context: Context, monkeypatch: pytest.MonkeyPatch, alive: Any, until: Any
) -> None:
    monkeypatch.setattr(programs, "TERMINATION_GRACE_SECONDS", 0.2)
    pids: list[int] = []
    ready = threading.Event()

    def on_line(line: str) -> None:
        pids.append(int(line))
        ready.set()

    script = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$; sleep 1000' & wait; sleep 1000"
    cancelling = threading.Thread(target=lambda: (ready.wait(30), context.cancel()))
    cancelling.start()
    with pytest.raises(ActionCancelledError):
        await asyncio.to_thread(context.run, ["sh", "-c", script], on_line=on_line)
    cancelling.join()
    await until(lambda: not alive(pids[0]))
    with pytest.raises(ActionCancelledError):
        context.run(["true"])


def test_an_error_in_the_handler_of_lines_ends_the_program(context: Context) -> None:
    def on_line(line: str) -> None:
        raise ZeroDivisionError(line)

    with pytest.raises(ZeroDivisionError, match="first"):
        context.run(["sh", "-c", "echo first; echo second; exec sleep 1000"], on_line=on_line)


def test_a_program_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Program(["no-such-program"], directory=tmp_path)
