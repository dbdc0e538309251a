# SPDX-License-Identifier: Apache-2.0
"""Commands ``action`` and ``attributes``, which call actions of workers and read their attributes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import yaml

from simyard.api.base import Json, find_condition
from simyard.api.names import SERVICE_ACTIONS, ConditionType
from simyard.api.service_action import ServiceAction
from simyard.api.simulation_service import DeclaredValue
from simyard.cli.files import make_reference
from simyard.cli.kubectl import Kubectl
from simyard.cli.output import Failure, make_output_option, print_object, print_table, say
from simyard.cli.results import describe_value, find_files, read_result
from simyard.cli.targets import Target, TargetType
from simyard_adapter.declarations import ValueType

JSON_TYPES = {kind.value for kind in ValueType} - {ValueType.STRING.value, ValueType.FILE.value}
"""Types of parameters whose values a user writes as JSON."""


@click.command()
@click.argument("target", type=TargetType())
@click.argument("name", metavar="ACTION")
@click.option("-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUE",
              help="A parameter of the action; NAME=@PATH reads the value from a file or uploads it. A file may also "
                   "be the address of a stored file, or a URL that the platform allows.")  # fmt: skip
@click.option("-f", "--filename", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
              help="A JSON or YAML file with the parameters; - reads standard input.")  # fmt: skip
@click.option("--wait/--no-wait", default=True,
              help="Wait for the result, or print the name of the ServiceAction and return.")  # fmt: skip
@make_output_option()
@click.pass_obj
def action(
    kubectl: Kubectl,
    target: Target,
    name: str,
    parameters: tuple[str, ...],
    filename: Path | None,
    wait: bool,
    output: str | None,
) -> None:
    """Call an ACTION of TARGET (worker/NAME, pool/NAME or service/NAME) and show its progress and result.

    A ServiceAction stores the invocation, so the action continues when your connection is lost. List all invocations
    with `kubectl get serviceactions`.
    """
    values = _from_file(filename)
    if parameters:
        declared = next((it for it in target.get_service(kubectl).spec.interface.actions if it.name == name), None)
        values |= _read_parameters(kubectl, parameters, declared.parameters if declared else ())
    created = kubectl.call(target.resource, target.name, f"actions/{name}?wait=false", {"parameters": values})
    invocation = created["metadata"]["name"]
    if not wait:
        print_object(created, output) if output else say(f"serviceaction.simyard.dev/{invocation} created")
        return
    finished = _follow(kubectl, invocation)
    result = read_result(kubectl, finished.status)
    if output:
        print_object(finished.status.model_copy(update={"result": result}).to_json(), output)
    elif finished.status.failure is None:
        seconds = (finished.status.run_milliseconds or 0) / 1000
        say(f"{finished.status.worker} completed {name} in {seconds:.2f} s", err=True)
        _print_result(result, invocation)
    if finished.status.failure is not None:
        raise Failure(f"{finished.status.failure.reason}: {finished.status.failure.message}")


@click.command()
@click.argument("target", type=TargetType())
@click.argument("name", required=False, metavar="[ATTRIBUTE]")
@click.option("--fresh", is_flag=True,
              help="Ask the workers now. By default the last values that they reported are shown.")  # fmt: skip
@make_output_option()
@click.pass_obj
def attributes(kubectl: Kubectl, target: Target, name: str | None, fresh: bool, output: str | None) -> None:
    """Read the attributes of TARGET (worker/NAME, pool/NAME or service/NAME)."""
    path = "attributes" + (f"/{name}" if name else "") + ("?fresh=true" if fresh else "")
    answer: Json = json.loads(kubectl.get_subresource(target.resource, target.name, path))
    if output:
        return print_object(answer, output)
    items = answer.get("items", [answer])
    rows = [
        (item["metadata"]["name"], key, value["value"], value.get("unit"), f"{value['ageMilliseconds'] / 1000:.1f}s")
        for item in items
        for key, value in item["values"].items()
    ]
    return print_table(["WORKER", "ATTRIBUTE", "VALUE", "UNIT", "AGE"], rows)


def _follow(kubectl: Kubectl, invocation: str) -> ServiceAction:
    """Show the progress of an invocation, and return its ServiceAction when it is finished."""
    shown = ""
    for raw in kubectl.watch(SERVICE_ACTIONS, invocation):
        current = ServiceAction.model_validate(raw)
        conditions = current.status.conditions
        for kind in (ConditionType.COMPLETE, ConditionType.FAILED):
            condition = find_condition(conditions, kind)
            if condition is not None and condition.status == "True":
                return current
        waiting = find_condition(conditions, ConditionType.COMPLETE)
        line = current.status.progress or (waiting.message if waiting else "")
        if current.status.percent is not None:
            line = f"{current.status.percent:3d} % {line}"
        if line and line != shown:
            say(line, err=True)
            shown = line
    raise Failure(
        f"the watch of serviceaction/{invocation} ended before the action did: the object was deleted, or "
        f"the API server closed the watch. See whether it still exists: kubectl get serviceaction {invocation}"
    )


def _from_file(filename: Path | None) -> Json:
    if filename is None:
        return {}
    try:
        data = yaml.safe_load(sys.stdin.buffer.read() if str(filename) == "-" else filename.read_bytes())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Failure(f"{filename}: not valid JSON or YAML: {error}") from None
    if isinstance(data, dict) and isinstance(data.get("parameters"), dict):
        data = data["parameters"]
    if not isinstance(data, dict):
        raise Failure(f"{filename}: must contain an object: the names of parameters and their values")
    return data


def _read_parameters(kubectl: Kubectl, texts: Iterable[str], declared: Iterable[DeclaredValue]) -> Json:
    """Return the parameters in texts NAME=VALUE, and upload the files that they name.

    For an array of files, the command line has one text for each file.
    """
    of_files = {item.name: item for item in declared if item.type == "file" or item.items is not None}
    values: Json = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in of_files:
            name, values[name] = parse_assignment(text, declared, "--parameter")
        elif of_files[name].type == "file":
            values[name] = make_reference(kubectl, value)
        else:
            values[name] = [*values.get(name, []), make_reference(kubectl, value)]
    return values


def parse_assignment(text: str, declared: Iterable[DeclaredValue], hint: str) -> tuple[str, Any]:
    """Return the name and the value of a text NAME=VALUE.

    The function parses the value by the declared type of the name. A value of another type remains a text, which the
    API server refuses.

    Args:
        text: the argument of the command line.
        declared: the parameters or attributes that the service declares.
        hint: the name of the option, for error messages.

    Raises:
        click.BadParameter: the text has no ``=``, or ``@FILE`` names a file that cannot be read as text.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} has no =: write NAME=VALUE", param_hint=hint)
    if value.startswith("@"):
        try:
            value = Path(value[1:]).read_text(encoding="utf-8")
        except OSError as error:
            raise click.BadParameter(f"{name}: cannot read {value[1:]}: {error.strerror}", param_hint=hint) from None
        except UnicodeDecodeError as error:
            raise click.BadParameter(
                f"{name}: {value[1:]} is a binary file: its byte {error.start} is not UTF-8 text. Parameters are text; "
                "if the action accepts encoded data, encode the file first, for example with base64",
                param_hint=hint,
            ) from None
    types = {item.name: item.type for item in declared}
    if types.get(name) in JSON_TYPES:
        try:
            return name, json.loads(value)
        except json.JSONDecodeError:
            return name, value
    return name, value


def _print_result(result: Any, invocation: str) -> None:
    if isinstance(result, dict):
        print_table(["RESULT", "VALUE"], [(name, describe_value(value)) for name, value in result.items()])
        if any(list(find_files(name, value)) for name, value in result.items()):
            say(f"download the files with: kubectl simyard results {invocation}", err=True)
