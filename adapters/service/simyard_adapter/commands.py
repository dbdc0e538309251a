# SPDX-License-Identifier: Apache-2.0
"""The connector without code: ``spec.connector.commands`` of a manifest, read and applied to values; no I/O.

``$(name)`` stands for a parameter of the action, ``$(simyard.files)`` for the directory of the manifest's files, and
``$$`` for ``$``. This is the rule of Kubernetes for container arguments, except that an unknown name is an error. No
shell is involved: an argument stays one argument, whatever its parameters contain. A parameter that begins with ``-``
can still look like an option to the program: put it behind ``--``, or declare a pattern.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, Mapping, Optional, Union

from simyard_adapter.declarations import (
    Action,
    Interface,
    InvalidValueError,
    InvalidValuesError,
    Value,
)
from simyard_adapter.errors import ParameterError
from simyard_adapter.outputs import ResultRule, find_rule_problem

FILES = "simyard.files"
MAX_ARGUMENT_BYTES = 128 * 2**10 - 1
"""Limit of a single argument or variable that Linux passes to a program (MAX_ARG_STRLEN)."""

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_MESSAGE_LINES = 20


@dataclass(frozen=True)
class FileTemplate:
    """A file that the adapter writes into the scratch directory before the program starts."""

    path: str
    content: str


@dataclass(frozen=True)
class ProgramCommand:
    """An action that runs a program."""

    action: str
    command: tuple[str, ...]
    stdin: Optional[str] = None
    files: tuple[FileTemplate, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    progress: Optional["re.Pattern[str]"] = None
    results: tuple[ResultRule, ...] = ()
    failure: Optional["re.Pattern[str]"] = None


@dataclass(frozen=True)
class CancelCommand:
    """An action that cancels the running invocations of another action."""

    action: str
    cancels: str


@dataclass(frozen=True)
class AttributeRule:
    """The rule for one attribute: the first group of ``pattern`` in a file, or in the output of a command.

    The adapter reads it every ``interval_seconds``.
    """

    attribute: str
    pattern: "re.Pattern[str]"
    interval_seconds: int
    file: str = ""
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class CommandSet:
    """The value of ``spec.connector.commands``, checked against the service's interface."""

    actions: Mapping[str, Union[ProgramCommand, CancelCommand]]
    attributes: tuple[AttributeRule, ...]

    @classmethod
    def from_json(cls, data: Mapping[str, Any], interface: Interface) -> "CommandSet":
        """Read the commands and check them.

        Raises:
            InvalidValuesError: One error for each wrong field, with its path in ``commands``.
        """
        reader = _Reader(interface)
        actions = [reader.read_action(item, path) for item, path in reader.read_objects(data, "actions")]
        attributes = [reader.read_attribute(item, path) for item, path in reader.read_objects(data, "attributes")]
        names = [item.action for item in actions]
        for declared in interface.actions:
            if names.count(declared.name) != 1:
                reader.add_error(
                    "actions",
                    f"has {names.count(declared.name)} entries for the action {declared.name}; exactly 1 is required",
                )
        if reader.errors:
            raise InvalidValuesError(reader.errors)
        return cls({item.action: item for item in actions}, tuple(attributes))


class _Reader:
    """The parser of the entries; it collects errors. Its results are only valid if ``errors`` is empty."""

    def __init__(self, interface: Interface) -> None:
        self._interface = interface
        self.errors: list[InvalidValueError] = []

    def add_error(self, path: str, problem: str) -> None:
        """Add an error."""
        self.errors.append(InvalidValueError(path, problem))

    def read_objects(self, data: Mapping[str, Any], key: str, path: str = "") -> list[tuple[Mapping[str, Any], str]]:
        """Return the objects in a list, each with its path."""
        items, path = data.get(key) or [], f"{path}.{key}" if path else key
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            self.add_error(path, "must be a list of objects")
            return []
        return [(item, f"{path}[{i}]") for i, item in enumerate(items)]

    def read_action(self, data: Mapping[str, Any], path: str) -> Union[ProgramCommand, CancelCommand]:
        """Read one entry of ``actions``."""
        name = str(data.get("action") or "")
        declared = self._interface.find_action(name)
        if declared is None:
            self.add_error(f"{path}.action", f"the interface declares no action {name!r}")
            declared = Action(name)
        if data.get("cancels"):
            return self._cancel(declared, str(data["cancels"]), path)
        names = {item.name for item in declared.parameters} | {FILES}
        return ProgramCommand(
            action=name,
            command=self._command(data, path, names),
            stdin=None if data.get("stdin") is None else self._template(data["stdin"], f"{path}.stdin", names),
            files=tuple(
                FileTemplate(
                    self._template(item.get("path"), f"{at}.path", names),
                    self._template(item.get("content", ""), f"{at}.content", names),
                )
                for item, at in self.read_objects(data, "files", path)
            ),
            env=tuple(
                (
                    self._template(item.get("name"), f"{at}.name", set()),
                    self._template(item.get("value", ""), f"{at}.value", names),
                )
                for item, at in self.read_objects(data, "env", path)
            ),
            progress=self._pattern(data.get("progressPattern"), f"{path}.progressPattern", groups=1),
            results=tuple(
                self._result(item, at, declared, names) for item, at in self.read_objects(data, "results", path)
            ),
            failure=self._pattern(data.get("failurePattern"), f"{path}.failurePattern", groups=0),
        )

    def _cancel(self, declared: Action, cancels: str, path: str) -> CancelCommand:
        if self._interface.find_action(cancels) is None:
            self.add_error(f"{path}.cancels", f"the interface declares no action {cancels!r}")
        if not declared.concurrent:
            self.add_error(
                f"{path}.cancels",
                f"the action {declared.name} must be declared concurrent; otherwise it waits for {cancels}",
            )
        return CancelCommand(declared.name, cancels)

    def read_attribute(self, data: Mapping[str, Any], path: str) -> AttributeRule:
        """Read one entry of ``attributes``."""
        name, interval = str(data.get("attribute") or ""), data.get("intervalSeconds", 5)
        if self._interface.find_attribute(name) is None:
            self.add_error(f"{path}.attribute", f"the interface declares no attribute {name!r}")
        if not isinstance(interval, int) or interval < 1:
            self.add_error(f"{path}.intervalSeconds", "must be at least 1")
        if bool(data.get("file")) == bool(data.get("command")):
            self.add_error(path, "set either file or command")
        return AttributeRule(
            attribute=name,
            pattern=self._needed_pattern(data, path),
            interval_seconds=interval,
            file=self._template(data.get("file") or "", f"{path}.file", {FILES}),
            command=self._command(data, path, {FILES}) if data.get("command") else (),
        )

    def _result(self, data: Mapping[str, Any], path: str, action: Action, names: set[str]) -> ResultRule:
        name = str(data.get("name") or "")
        declared = next((item for item in action.result if item.name == name), None)
        if declared is None:
            self.add_error(f"{path}.name", f"the action {action.name} declares no result {name!r}")
        rule = ResultRule(
            name,
            self._template(data.get("file") or "", f"{path}.file", names),
            self._template(data.get("folder") or "", f"{path}.folder", names),
            self._pattern(data.get("pattern"), f"{path}.pattern", groups=1),
            None if data.get("json") is None else str(data["json"]),
            str(data.get("column") or ""),
        )
        problem = find_rule_problem(rule, declared) if declared is not None else ""
        if problem:
            self.add_error(path, problem)
        return rule

    def _command(self, data: Mapping[str, Any], path: str, names: set[str]) -> tuple[str, ...]:
        command = data.get("command")
        if not isinstance(command, (list, tuple)) or not command:
            self.add_error(f"{path}.command", "must be a list of the program and its arguments")
            return ()
        if set(find_references(str(command[0]))) - {FILES}:
            self.add_error(f"{path}.command[0]", "must not contain a parameter: a parameter cannot select the program")
        return tuple(self._template(item, f"{path}.command[{i}]", names) for i, item in enumerate(command))

    def _template(self, text: Any, path: str, names: set[str]) -> str:
        if not isinstance(text, str):
            self.add_error(path, "must be a string")
            return ""
        for name in find_references(text):
            if name not in names:
                self.add_error(
                    path, f"$({name}) is not one of {', '.join(sorted(names))}; write $$({name}) for the text itself"
                )
        return text

    def _needed_pattern(self, data: Mapping[str, Any], path: str) -> "re.Pattern[str]":
        pattern = self._pattern(data.get("pattern"), f"{path}.pattern", groups=1)
        if pattern is None:
            self.add_error(f"{path}.pattern", "is required")
            return re.compile("")
        return pattern

    def _pattern(self, text: Any, path: str, *, groups: int) -> Optional["re.Pattern[str]"]:
        if not text:
            return None
        try:
            pattern = re.compile(str(text), re.MULTILINE)
        except (re.error, OverflowError, RecursionError) as error:
            self.add_error(path, f"is not a valid regular expression: {error}")
            return re.compile("()")
        if pattern.groups < groups:
            self.add_error(path, "must have a group in parentheses, which marks the value")
        return pattern


def find_references(text: str) -> list[str]:
    """Return the names of the references in a text."""
    return [match[1] for match in _REFERENCE.finditer(text) if match[1] is not None]


def expand(text: str, values: Mapping[str, str]) -> str:
    """Return the text with its references replaced; references inside values are not expanded again."""
    return _REFERENCE.sub(lambda match: "$" if match[1] is None else values[match[1]], text)


def expand_argument(text: str, values: Mapping[str, str]) -> str:
    """Expand an argument, a variable or a path like :func:`expand`.

    Raises:
        ParameterError: A value contains a NUL character or is longer than an argument can be.
    """
    for name in find_references(text):
        if "\0" in values[name]:
            raise ParameterError(f"parameters.{name}", "contains a NUL character, which is not possible in an argument")
        if len(values[name].encode()) > MAX_ARGUMENT_BYTES:
            raise ParameterError(
                f"parameters.{name}", f"is too long for an argument; the limit is {MAX_ARGUMENT_BYTES} bytes"
            )
    return expand(text, values)


def render_parameters(parameters: Mapping[str, Any], declared: Iterable[Value]) -> dict[str, str]:
    """Return the parameters as text: strings unchanged, absent values empty, all others as JSON.

    A file is its path, and an array of files is the path of the folder that has them.
    """
    texts = {}
    for item in declared:
        value = parameters.get(item.name)
        if item.holds_files and value:
            texts[item.name] = str(value if isinstance(value, Path) else value[0].parent)
        else:
            texts[item.name] = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    return texts


def build_failure_message(command: ProgramCommand, returncode: int, stdout: str, stderr: str) -> str:
    """Return the error message of a failed program: the match of ``failurePattern``, else the end of its output."""
    for output in (stdout, stderr) if command.failure else ():
        match = command.failure.search(output) if command.failure else None
        if match and match[0].strip():
            return match[0].strip()
    how = f"exit code {returncode}" if returncode >= 0 else f"ended by signal {-returncode}"
    said = "\n".join((stderr.strip() or stdout.strip()).splitlines()[-_MESSAGE_LINES:])
    return f"{command.command[0]}: {how}" + (f": {said}" if said else "")
