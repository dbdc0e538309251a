# SPDX-License-Identifier: Apache-2.0
"""The connector of the tests: each run of an action leaves a line in the file `runs`."""

import asyncio
import sys
import time
from pathlib import Path

from simyard_adapter import ActionError, Connector, Context, action, attribute, parameter

NUMBER = parameter("number", "integer", required=True)
RUNS = parameter("runs", "string", required=True, description="where a run leaves its line")
GATE = parameter("gate", "string", default="", description="it waits for this file")


class Tested(Connector):
    state = attribute("string", default="idle", enum=("idle", "running"))
    done = attribute("integer", default=0)
    colour = attribute("string", mutable=True, enum=("red", "green", "blue"))

    def start(self):
        self.log.info("started with colour %s", self.colour)

    def _run(self, context, runs, gate, number):
        with Path(runs).open("a") as file:
            file.write(context.invocation + "\n")
        self.state = "running"
        while gate and not Path(gate).exists():
            context.check_cancelled()
            time.sleep(0.01)
        self.state = "idle"
        self.done += 1
        return {"square": number * number}

    @action(
        parameters=[NUMBER, RUNS, GATE], result=[parameter("square", "integer")], timeout_seconds=120, idempotent=True
    )
    def square(self, context: Context, *, number, runs, gate):
        return self._run(context, runs, gate, number)

    @action(parameters=[NUMBER, RUNS, GATE], result=[parameter("square", "integer")], timeout_seconds=120)
    def once(self, context: Context, *, number, runs, gate):
        return self._run(context, runs, gate, number)

    @action(parameters=[GATE], timeout_seconds=1)
    def hang(self, context: Context, *, gate):
        while not Path(gate).exists():
            time.sleep(0.01)

    @action(concurrent=True)
    async def fail(self, context: Context):
        raise ActionError("*ERROR: the deck is empty")

    @action(concurrent=True)
    def crash(self, context: Context):
        self.state = "bogus"

    @action(concurrent=True, result=[parameter("cancelled", "integer")])
    def cancel(self, context: Context):
        others = [item for item in self.invocations if item.action != "cancel"]
        for other in others:
            other.cancel()
        return {"cancelled": len(others)}

    @action(timeout_seconds=2, parameters=[parameter("pids", "string", required=True)])
    def sleep(self, context: Context, *, pids):
        context.run([sys.executable, "-c", PROGRAM, pids])

    @action(timeout_seconds=60, concurrent=True)
    async def wait(self, context: Context):
        context.progress(10, "waiting")
        await asyncio.sleep(3600)

    @action(parameters=[parameter("steps", "integer", default=100)])
    def report(self, context: Context, *, steps):
        for step in range(steps):
            context.progress(100 * step / steps, f"step {step}")
            context.log(f"line {step}")
            time.sleep(0.005)

    def on_set(self, name, value):
        if value == "blue":
            raise ActionError("there is no blue")


PROGRAM = """
import os, subprocess, sys
child = subprocess.Popen(["sleep", "1000"])
with open(sys.argv[1] + ".new", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename(sys.argv[1] + ".new", sys.argv[1])
child.wait()
"""
