# SPDX-License-Identifier: Apache-2.0
"""The commands ``kubectl-simyard`` and ``kubectl_complete-simyard``."""

from __future__ import annotations

import sys

import click
from click.shell_completion import ShellComplete

from simyard.cli import action, listing, timeline_command
from simyard.cli.files import cp, list_files
from simyard.cli.global_options import add_global_options
from simyard.cli.kubectl import Kubectl
from simyard.cli.logs import show_logs
from simyard.cli.output import say
from simyard.cli.results import show_results
from simyard.cli.rotate import rotate
from simyard.cli.set_command import set_attributes
from simyard.cli.study.commands import study_group
from simyard.cli.usage import usage

COMPLETION_HINT = """\
kubectl completes the words of a plugin with the command `kubectl_complete-simyard`, which is installed together with
`kubectl-simyard`. Put the folder of both into PATH, and load kubectl's completion into your shell, for example:
source <(kubectl completion bash)"""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="simyard", prog_name="kubectl simyard")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Find simulation services, run pools of their workers, and call their actions."""
    ctx.obj = ctx.obj or Kubectl()


@cli.command()
def completion() -> None:
    """Explain how your shell completes the words of this command."""
    say(COMPLETION_HINT)


for command in (listing.services, listing.pools, listing.workers, listing.licences, listing.describe):
    cli.add_command(command)
cli.add_command(action.action)
cli.add_command(action.attributes)
cli.add_command(show_logs)
cli.add_command(set_attributes)
cli.add_command(timeline_command.show_timeline)
cli.add_command(usage)
cli.add_command(cp)
cli.add_command(list_files)
cli.add_command(show_results)
cli.add_command(rotate)
cli.add_command(study_group)
for place in (cli, *cli.commands.values(), *study_group.commands.values()):
    add_global_options(place)


def main() -> None:
    """Run the command ``kubectl-simyard``."""
    cli(prog_name="kubectl simyard")


def complete() -> None:
    """Run the command ``kubectl_complete-simyard``, which kubectl calls to complete the words of the plugin.

    The protocol is that of cobra. The last argument is the incomplete word. The answer has one line for each
    completion, and a last line with ``:`` and a directive (4: do not complete file names).
    """
    *words, incomplete = sys.argv[1:] or [""]
    completer = ShellComplete(cli, {}, "kubectl simyard", "_KUBECTL_SIMYARD_COMPLETE")
    for item in completer.get_completions(words, incomplete):
        say(f"{item.value}\t{item.help}" if item.help else item.value)
    say(":4")
