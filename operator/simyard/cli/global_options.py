# SPDX-License-Identifier: Apache-2.0
"""Options that choose the cluster and the namespace. As with kubectl, they can be before and after the subcommand."""

from __future__ import annotations

from dataclasses import replace

import click

from simyard.cli.kubectl import Kubectl

GLOBAL_OPTIONS = ("namespace", "context", "kubeconfig")
"""The names of the options that :func:`add_global_options` adds to a command."""


def add_global_options(command: click.Command) -> None:
    """Add the options to a command; the last occurrence on the command line counts."""
    command.params += [
        _option(("-n", "--namespace"), click.STRING, "The namespace to work in."),
        _option(("--context",), click.STRING, "The kubeconfig context to use."),
        _option(("--kubeconfig",), click.Path(dir_okay=False), "The kubeconfig file to use."),
    ]


def _option(names: tuple[str, ...], kind: click.ParamType[str], text: str) -> click.Option:
    return click.Option(names, type=kind, help=text, callback=_choose, expose_value=False)


def _choose(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
    """Store the value in the Kubectl that the subcommand and the completion of its arguments use."""
    if value is None:
        return
    kubectl = ctx.obj or Kubectl()
    if option.name == "namespace":
        ctx.obj = replace(kubectl, namespace=value)
    else:
        ctx.obj = replace(kubectl, options=(*kubectl.options, f"--{option.name}={value}"))
