# SPDX-License-Identifier: Apache-2.0
"""Part ``spec.connector`` of the kind SimulationService: it connects the interface with the program."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simyard.api.base import ATOMIC, ApiModel, Pattern, Term, add_cel_rules, make_cel_rule, map_by

Argument = Annotated[str, Field(max_length=4096)]
_SEGMENT = "[A-Za-z0-9_][A-Za-z0-9_.-]*"
RelativePath = Annotated[str, Field(min_length=1, max_length=255, pattern=f"^{_SEGMENT}(/{_SEGMENT})*$")]


class PythonConnector(ApiModel):
    """Connector that is a Python class."""

    class_: Annotated[
        str,
        Field(
            alias="class",
            max_length=255,
            pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$",
            description="Class, as MODULE:CLASS; the module is one of `files` or installed in the image.",
        ),
    ]


class InputFile(ApiModel):
    """File that is written before a command runs."""

    path: Annotated[RelativePath, Field(description="Path relative to the command's working directory.")]
    content: Annotated[
        str, Field(max_length=65536, description="Text of the file; $(PARAMETER) stands for the parameter's value.")
    ]


class EnvironmentVariable(ApiModel):
    """Variable in a command's environment."""

    name: Annotated[
        str, Field(max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="Name of the variable.")
    ]
    value: Annotated[
        Argument, Field(description="Value of the variable; $(PARAMETER) stands for the parameter's value.")
    ] = ""


class CommandResult(ApiModel):
    """Rule to read one field of a result after the command."""

    model_config = add_cel_rules(
        make_cel_rule(
            "[has(self.pattern), has(self.json), has(self.column)].filter(given, given).size() <= 1",
            "at most one of pattern, json and column may be set",
        ),
        make_cel_rule("!(has(self.file) && has(self.folder))", "at most one of file and folder may be set"),
    )

    name: Annotated[Term, Field(description="Declared field of the action's result.")]
    file: Annotated[
        RelativePath | None,
        Field(
            description="File with the value; for a result of the type `file`, the file itself. By default the value is"
            " read from the command's output."
        ),
    ] = None
    folder: Annotated[
        RelativePath | None,
        Field(description="Folder whose files are an array of files, including the files in its subfolders."),
    ] = None
    pattern: Annotated[
        Pattern | None, Field(description="Regular expression for the text; its first group is the value.")
    ] = None
    json_: Annotated[
        str | None,
        Field(
            alias="json",
            max_length=512,
            pattern=r"^(/.*)?$",
            description="JSON Pointer (RFC 6901) to the value in a JSON text; the empty pointer is the whole text.",
        ),
    ] = None
    column: Annotated[
        str | None,
        Field(min_length=1, max_length=128, description="Column of a CSV table with a header; its cells are an array."),
    ] = None


class CommandAction(ApiModel):
    """Command that carries out one action. Arguments are passed without a shell."""

    model_config = add_cel_rules(
        make_cel_rule("has(self.command) != has(self.cancels)", "exactly one of command and cancels must be set"),
    )

    action: Annotated[Term, Field(description="Declared action.")]
    command: Annotated[
        list[Argument] | None,
        Field(
            min_length=1,
            max_length=64,
            json_schema_extra=ATOMIC,
            description="Program and arguments; $(PARAMETER) stands for the parameter's value.",
        ),
    ] = None
    cancels: Annotated[Term | None, Field(description="Action that this action cancels. It runs no command.")] = None
    stdin: Annotated[
        Argument | None,
        Field(description="Standard input of the command; $(PARAMETER) stands for the parameter's value."),
    ] = None
    files: Annotated[
        list[InputFile],
        Field(
            max_length=16,
            json_schema_extra=map_by("path"),
            description="Files that are written before the command runs.",
        ),
    ] = []
    env: Annotated[
        list[EnvironmentVariable],
        Field(
            max_length=32,
            json_schema_extra=map_by("name"),
            description="Variables that are added to the command's environment.",
        ),
    ] = []
    progress_pattern: Annotated[
        Pattern | None,
        Field(description="Regular expression for lines of the output; its first group is the percentage done."),
    ] = None
    failure_pattern: Annotated[
        Pattern | None, Field(description="Regular expression whose match is the message when the command fails.")
    ] = None
    results: Annotated[
        list[CommandResult],
        Field(max_length=64, json_schema_extra=map_by("name"), description="Rules to read the result."),
    ] = []


class CommandAttribute(ApiModel):
    """Rule to read one attribute, from a file or from the output of a command."""

    model_config = add_cel_rules(
        make_cel_rule("has(self.command) != has(self.file)", "exactly one of command and file must be set"),
    )

    attribute: Annotated[Term, Field(description="Declared attribute.")]
    file: Annotated[RelativePath | None, Field(description="File to search.")] = None
    command: Annotated[
        list[Argument] | None,
        Field(min_length=1, max_length=64, json_schema_extra=ATOMIC, description="Command whose output is searched."),
    ] = None
    pattern: Annotated[Pattern, Field(description="Regular expression; its first group is the value.")]
    interval_seconds: Annotated[int, Field(ge=1, le=86_400, description="Time between two readings.")] = 5


class CommandsConnector(ApiModel):
    """Connector without code: commands for actions, files and patterns for attributes."""

    actions: Annotated[
        list[CommandAction],
        Field(max_length=64, json_schema_extra=map_by("action"), description="Commands of the declared actions."),
    ] = []
    attributes: Annotated[
        list[CommandAttribute],
        Field(max_length=128, json_schema_extra=map_by("attribute"), description="Rules to read attributes."),
    ] = []


class ConnectorFile(ApiModel):
    """File that belongs to the connector."""

    path: Annotated[RelativePath, Field(description="Path relative to the connector's folder.")]
    content: Annotated[str, Field(max_length=524_288, description="Text of the file.")]


class Connector(ApiModel):
    """Connection of the interface with the program: exactly one of python and commands."""

    model_config = add_cel_rules(
        make_cel_rule("has(self.python) != has(self.commands)", "exactly one of python and commands must be set"),
    )

    python: PythonConnector | None = None
    commands: CommandsConnector | None = None
    files: Annotated[
        list[ConnectorFile],
        Field(max_length=32, json_schema_extra=map_by("path"), description="Files that belong to the connector."),
    ] = []
