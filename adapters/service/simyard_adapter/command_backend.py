# SPDX-License-Identifier: Apache-2.0
"""The backend of connectors without code: it runs programs for actions, and reads attributes from files or programs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any, Mapping, Optional

from simyard_adapter.attributes import AttributeStore
from simyard_adapter.backend import BackendEnvironment, run_in_thread
from simyard_adapter.commands import (
    FILES,
    AttributeRule,
    CancelCommand,
    CommandSet,
    ProgramCommand,
    build_failure_message,
    expand,
    expand_argument,
    render_parameters,
)
from simyard_adapter.context import Context
from simyard_adapter.declarations import Interface, Json, Value, ValueType
from simyard_adapter.errors import ActionCancelledError, ActionError, ParameterError
from simyard_adapter.outputs import Output, ResultRule, convert_output, find_match, find_result
from simyard_adapter.programs import Program

ATTRIBUTE_TIMEOUT_SECONDS = 10.0


class CommandBackend:
    """A connector that consists of commands (implements :class:`simyard_adapter.backend.Backend`)."""

    def __init__(self, commands: CommandSet, interface: Interface) -> None:
        self.attributes = AttributeStore(interface)
        self._interface = interface
        self._commands = commands
        self._unreadable: set[str] = set()
        self._readers: list[asyncio.Task[None]] = []
        self._environment: Optional[BackendEnvironment] = None

    @property
    def _started(self) -> BackendEnvironment:
        assert self._environment is not None
        return self._environment

    async def start(self, environment: BackendEnvironment) -> None:
        """Set the user's values and read the attributes for the first time."""
        self._environment = environment
        self.attributes.update(environment.attributes)
        await self.refresh()
        self._readers = [asyncio.ensure_future(self._keep_reading(rule)) for rule in self._commands.attributes]

    async def stop(self) -> None:
        """Stop reading attributes."""
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def refresh(self) -> None:
        """Read all attributes now; an attribute that cannot be read keeps its value."""
        await asyncio.gather(*(self._read(rule) for rule in self._commands.attributes))

    async def set_attribute(self, name: str, value: Json) -> None:
        """Store the value; a connector without code has no hook for it."""
        self.attributes.set(name, value)

    async def invoke(self, context: Context, parameters: Mapping[str, Json]) -> Mapping[str, Json]:
        """Run the action's program, or cancel the invocations that a cancel action names."""
        command = self._commands.actions[context.action]
        if isinstance(command, CancelCommand):
            return self._cancel(command)
        return await run_in_thread(lambda: self._run(command, context, parameters))

    def _cancel(self, command: CancelCommand) -> Mapping[str, Json]:
        targets = [context for context in self._started.running() if context.action == command.cancels]
        for context in targets:
            context.cancel()
        action = self._interface.find_action(command.action)
        declared = {item.name for item in action.result} if action else set()
        return {"cancelled": len(targets)} if "cancelled" in declared else {}

    def _run(self, command: ProgramCommand, context: Context, parameters: Mapping[str, Json]) -> Mapping[str, Json]:
        action = self._interface.find_action(command.action)
        assert action is not None
        values = {**render_parameters(parameters, action.parameters), FILES: str(self._started.directory)}
        for file in command.files:
            path = _inside(context.directory, expand_argument(file.path, values))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(expand(file.content, values).encode())

        def on_line(line: str) -> None:
            found = find_match(line, command.progress) if command.progress else None
            if found is not None:
                with contextlib.suppress(ValueError):
                    context.progress(float(found))

        done = context.run(
            [expand_argument(argument, values) for argument in command.command],
            stdin=None if command.stdin is None else expand(command.stdin, values),
            env={name: expand_argument(value, values) for name, value in command.env},
            on_line=on_line if command.progress else None,
        )
        if done.returncode:
            raise ActionError(build_failure_message(command, done.returncode, done.stdout, done.stderr))
        stdout = Output("the output", done.stdout, cut=done.cut)
        result: dict[str, Any] = {}
        declared = {item.name: item for item in action.result}
        for rule in command.results:
            value = _read_result(context.directory, rule, declared[rule.name], values, stdout)
            if value is not None:
                result[rule.name] = value
            elif declared[rule.name].required:
                raise ActionError(f"result {rule.name}: {rule.problem_if_absent}")
        return result

    async def _keep_reading(self, rule: AttributeRule) -> None:
        while True:
            await asyncio.sleep(rule.interval_seconds)
            await self._read(rule)

    async def _read(self, rule: AttributeRule) -> None:
        """Read one attribute; log a failure only once until the attribute can be read again."""
        declared = self._interface.find_attribute(rule.attribute)
        assert declared is not None
        try:
            text, _ = await run_in_thread(lambda: self._source(rule).read_end())
            found = find_match(text, rule.pattern)
            if found is None:
                raise ActionError(f"no match for the pattern {rule.pattern.pattern}")
            self.attributes.set(rule.attribute, convert_output(found, declared))
            self._unreadable.discard(rule.attribute)
        except (ActionError, ActionCancelledError, OSError, ValueError) as error:
            if rule.attribute not in self._unreadable:
                self._unreadable.add(rule.attribute)
                self._started.log.warning("cannot read the attribute %s: %s", rule.attribute, error)

    def _source(self, rule: AttributeRule) -> Output:
        directory = self._started.directory
        values = {FILES: str(directory)}
        if rule.file:
            return Output(rule.file, path=directory / expand(rule.file, values))
        program = Program([expand(argument, values) for argument in rule.command], directory=directory)
        timer = threading.Timer(ATTRIBUTE_TIMEOUT_SECONDS, program.terminate)
        timer.daemon = True
        timer.start()
        try:
            done = program.wait()
        finally:
            timer.cancel()
        if done.returncode:
            raise ActionError(f"{rule.command[0]} ended with exit code {done.returncode}")
        return Output(rule.command[0], done.stdout)


def _read_result(directory: Path, rule: ResultRule, declared: Value, values: Mapping[str, str], stdout: Output) -> Any:
    """Return the value that a rule finds, or None; the path of a file or folder for a result of files.

    Raises:
        ActionError: The program did not write the file, or its content is not of the declared type.
    """
    if declared.holds_files:
        path = _inside(directory, expand_argument(rule.folder or rule.file, values))
        if not path.exists():
            if declared.required:
                raise ActionError(f"result {declared.name}: the program did not write {rule.folder or rule.file}")
            return None
        return [path] if rule.file and declared.type is ValueType.ARRAY else path
    output = stdout
    if rule.file:
        name = expand_argument(rule.file, values)
        output = Output(name, path=_inside(directory, name))
    return find_result(output, rule, declared)


def _inside(directory: Path, name: str) -> Path:
    """Return a path below the directory, with symbolic links resolved.

    Raises:
        ParameterError: The path leads out of the directory.
    """
    root = directory.resolve()
    path = (root / name).resolve()
    if root not in path.parents:
        raise ParameterError("parameters", f"the path {name!r} leads out of the scratch directory")
    return path
