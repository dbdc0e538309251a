"""The connector with no code: ``spec.connector.commands`` of a manifest, read and applied to values; no I/O.

``$(name)`` stands for a parameter of the action, ``$(simyard.files)`` for the directory of the manifest's files, and
``$$`` for ``$``: the rule of Kubernetes for container arguments, except that an unknown name is an error. No shell is
involved: an argument stays one argument, whatever its parameters hold. A parameter that begins with ``-`` can still
look like an option to the program: put it behind ``--``, or declare a pattern.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Mapping, Optional, Union

from simyard_adapter.declarations import (
    Action,
    Interface,
    InvalidValueError,
    InvalidValuesError,
    Json,
    Value,
    ValueType,
)
from simyard_adapter.errors import ActionError, ParameterError

FILES = "simyard.files"
ARGUMENT_LIMIT_BYTES = 128 * 2**10 - 1
"""The longest single argument or variable that Linux passes to a program (MAX_ARG_STRLEN)."""

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_MESSAGE_LINES = 20


@dataclass(frozen=True)
class FileTemplate:
    """A file that is written into the scratch directory before the program starts."""

    path: str
    content: str


@dataclass(frozen=True)
class ResultRule:
    """A field of the result: the first group of ``pattern`` in ``file`` of the scratch directory, or in the output."""

    name: str
    pattern: "re.Pattern[str]"
    file: str = ""


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
    """An action that cancels the running invocations of another one."""

    action: str
    cancels: str


@dataclass(frozen=True)
class AttributeRule:
    """An attribute: the first group of ``pattern`` in a file, or in the output of a command, read every so often."""

    attribute: str
    pattern: "re.Pattern[str]"
    interval_seconds: int
    file: str = ""
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class CommandSet:
    """``spec.connector.commands``, checked against the service's interface."""

    actions: Mapping[str, Union[ProgramCommand, CancelCommand]]
    attributes: tuple[AttributeRule, ...]

    @classmethod
    def from_json(cls, data: Mapping[str, Any], interface: Interface) -> "CommandSet":
        """Read and check them.

        Raises:
            InvalidValuesError: names every place that is wrong, by its path in ``commands``.
        """
        reader = _Reader(interface)
        actions = [reader.action(item, path) for item, path in reader.objects(data, "actions")]
        attributes = [reader.attribute(item, path) for item, path in reader.objects(data, "attributes")]
        names = [item.action for item in actions]
        for declared in interface.actions:
            if names.count(declared.name) != 1:
                reader.wrong("actions", f"{names.count(declared.name)} entries for the action {declared.name}, need 1")
        if reader.errors:
            raise InvalidValuesError(reader.errors)
        return cls({item.action: item for item in actions}, tuple(attributes))


class _Reader:
    """Reads entries and collects what is wrong; what it returns is of use only if nothing is."""

    def __init__(self, interface: Interface) -> None:
        self._interface = interface
        self.errors: list[InvalidValueError] = []

    def wrong(self, path: str, problem: str) -> None:
        """Note a problem."""
        self.errors.append(InvalidValueError(path, problem))

    def objects(self, data: Mapping[str, Any], key: str, path: str = "") -> list[tuple[Mapping[str, Any], str]]:
        """The objects in a list, each with its path."""
        items, path = data.get(key) or [], f"{path}.{key}" if path else key
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            self.wrong(path, "must be a list of objects")
            return []
        return [(item, f"{path}[{i}]") for i, item in enumerate(items)]

    def action(self, data: Mapping[str, Any], path: str) -> Union[ProgramCommand, CancelCommand]:
        """One entry of ``actions``."""
        name = str(data.get("action") or "")
        declared = self._interface.action(name)
        if declared is None:
            self.wrong(f"{path}.action", f"the action {name!r} is not declared")
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
                for item, at in self.objects(data, "files", path)
            ),
            env=tuple(
                (
                    self._template(item.get("name"), f"{at}.name", set()),
                    self._template(item.get("value", ""), f"{at}.value", names),
                )
                for item, at in self.objects(data, "env", path)
            ),
            progress=self._pattern(data.get("progressPattern"), f"{path}.progressPattern", groups=1),
            results=tuple(self._result(item, at, declared, names) for item, at in self.objects(data, "results", path)),
            failure=self._pattern(data.get("failurePattern"), f"{path}.failurePattern", groups=0),
        )

    def _cancel(self, declared: Action, cancels: str, path: str) -> CancelCommand:
        if self._interface.action(cancels) is None:
            self.wrong(f"{path}.cancels", f"the action {cancels!r} is not declared")
        if not declared.concurrent:
            self.wrong(f"{path}.cancels", f"the action {declared.name} must be concurrent, or it waits for {cancels}")
        return CancelCommand(declared.name, cancels)

    def attribute(self, data: Mapping[str, Any], path: str) -> AttributeRule:
        """One entry of ``attributes``."""
        name, interval = str(data.get("attribute") or ""), data.get("intervalSeconds", 5)
        if self._interface.attribute(name) is None:
            self.wrong(f"{path}.attribute", f"the attribute {name!r} is not declared")
        if not isinstance(interval, int) or interval < 1:
            self.wrong(f"{path}.intervalSeconds", "must be at least 1")
        if bool(data.get("file")) == bool(data.get("command")):
            self.wrong(path, "exactly one of file and command must be given")
        return AttributeRule(
            attribute=name,
            pattern=self._needed_pattern(data, path),
            interval_seconds=interval,
            file=self._template(data.get("file") or "", f"{path}.file", {FILES}),
            command=self._command(data, path, {FILES}) if data.get("command") else (),
        )

    def _result(self, data: Mapping[str, Any], path: str, declared: Action, names: set[str]) -> ResultRule:
        name = str(data.get("name") or "")
        if name not in {item.name for item in declared.result}:
            self.wrong(f"{path}.name", f"the action {declared.name} declares no result {name!r}")
        file = self._template(data.get("file") or "", f"{path}.file", names)
        return ResultRule(name, self._needed_pattern(data, path), file)

    def _command(self, data: Mapping[str, Any], path: str, names: set[str]) -> tuple[str, ...]:
        command = data.get("command")
        if not isinstance(command, (list, tuple)) or not command:
            self.wrong(f"{path}.command", "must be a list: the program, then its arguments")
            return ()
        if set(references(str(command[0]))) - {FILES}:
            self.wrong(f"{path}.command[0]", "the program cannot come from a parameter")
        return tuple(self._template(item, f"{path}.command[{i}]", names) for i, item in enumerate(command))

    def _template(self, text: Any, path: str, names: set[str]) -> str:
        if not isinstance(text, str):
            self.wrong(path, "must be a string")
            return ""
        for name in references(text):
            if name not in names:
                self.wrong(path, f"$({name}) is not one of {', '.join(sorted(names))}; write $$({name}) to keep it")
        return text

    def _needed_pattern(self, data: Mapping[str, Any], path: str) -> "re.Pattern[str]":
        pattern = self._pattern(data.get("pattern"), f"{path}.pattern", groups=1)
        if pattern is None:
            self.wrong(f"{path}.pattern", "is required")
            return re.compile("")
        return pattern

    def _pattern(self, text: Any, path: str, *, groups: int) -> Optional["re.Pattern[str]"]:
        if not text:
            return None
        try:
            pattern = re.compile(str(text), re.MULTILINE)
        except (re.error, OverflowError, RecursionError) as error:
            self.wrong(path, f"is not a regular expression: {error}")
            return re.compile("()")
        if pattern.groups < groups:
            self.wrong(path, "must have a group: what is between its parentheses is taken")
        return pattern


def references(text: str) -> list[str]:
    """The names that a text refers to."""
    return [match[1] for match in _REFERENCE.finditer(text) if match[1] is not None]


def expand(text: str, values: Mapping[str, str]) -> str:
    """The text with its references replaced, once: what a value holds is not expanded again."""
    return _REFERENCE.sub(lambda match: "$" if match[1] is None else values[match[1]], text)


def expand_argument(text: str, values: Mapping[str, str]) -> str:
    """As :func:`expand`, for an argument, a variable or a path.

    Raises:
        ParameterError: a value holds a NUL, or is longer than an argument can be.
    """
    for name in references(text):
        if "\0" in values[name]:
            raise ParameterError(f"parameters.{name}", "holds a NUL character, which no argument can carry")
        if len(values[name].encode()) > ARGUMENT_LIMIT_BYTES:
            raise ParameterError(f"parameters.{name}", f"is longer than {ARGUMENT_LIMIT_BYTES} bytes as an argument")
    return expand(text, values)


def as_texts(parameters: Mapping[str, Json], declared: Iterable[Value]) -> dict[str, str]:
    """The parameters as text: strings as they are, the rest as JSON, absent ones empty."""
    texts = {}
    for item in declared:
        value = parameters.get(item.name)
        texts[item.name] = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    return texts


def converted(text: str, declared: Value) -> Json:
    """A piece of a program's output as a value of the declared type.

    Raises:
        ActionError: it is no such value.
    """
    try:
        return declared.check(_READ[declared.type](text), declared.name)
    except InvalidValueError as error:
        raise ActionError(f"the program's result is refused: {error}") from None
    except (ValueError, KeyError):
        raise ActionError(
            f"{declared.name}: the program's {text[:60]!r} is not of type {declared.type.value}"
        ) from None


_READ: Mapping[ValueType, Callable[[str], Json]] = {
    ValueType.STRING: str,
    ValueType.INTEGER: int,
    ValueType.NUMBER: float,
    ValueType.BOOLEAN: lambda text: {"true": True, "1": True, "false": False, "0": False}[text.lower()],
    ValueType.ARRAY: json.loads,
    ValueType.OBJECT: json.loads,
}


def failure_message(command: ProgramCommand, returncode: int, stdout: str, stderr: str) -> str:
    """What a program that failed says: what ``failurePattern`` finds, else the end of its output."""
    for output in (stdout, stderr) if command.failure else ():
        match = command.failure.search(output) if command.failure else None
        if match and match[0].strip():
            return match[0].strip()
    how = f"exit code {returncode}" if returncode >= 0 else f"ended by signal {-returncode}"
    said = "\n".join((stderr.strip() or stdout.strip()).splitlines()[-_MESSAGE_LINES:])
    return f"{command.command[0]}: {how}" + (f": {said}" if said else "")
