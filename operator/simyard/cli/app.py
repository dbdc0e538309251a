"""The command ``kubectl-simyard`` and its completion."""

from __future__ import annotations

import sys

import click
from click.shell_completion import ShellComplete

from simyard.cli import action, listing, timeline_command
from simyard.cli.global_options import add_global_options
from simyard.cli.kubectl import Kubectl
from simyard.cli.output import say
from simyard.cli.rotate import rotate
from simyard.cli.set_command import set_attributes
from simyard.cli.usage import usage

COMPLETION_HINT = """\
kubectl completes plugins itself: put this script into PATH as `kubectl_complete-simyard` (it is installed with the
command), and switch on kubectl's own completion, for example: source <(kubectl completion bash)"""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="simyard", prog_name="kubectl simyard")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Simulation services on Kubernetes: find them, run pools of workers, call their actions."""
    ctx.obj = ctx.obj or Kubectl()


@cli.command()
def completion() -> None:
    """Say how to switch on completion in your shell."""
    say(COMPLETION_HINT)


for command in (listing.services, listing.pools, listing.workers, listing.describe, action.action, action.attributes):
    cli.add_command(command)
cli.add_command(action.logs)
cli.add_command(set_attributes)
cli.add_command(timeline_command.show_timeline)
cli.add_command(usage)
cli.add_command(rotate)
for place in (cli, *cli.commands.values()):
    add_global_options(place)


def main() -> None:
    """Entry point of ``kubectl-simyard``."""
    cli(prog_name="kubectl simyard")


def complete() -> None:
    """Entry point of ``kubectl_complete-simyard``: what kubectl asks its plugins, answered as it expects (cobra).

    The last argument is the incomplete word; a line per completion, then ``:`` and a directive (4: no file names).
    """
    *words, incomplete = sys.argv[1:] or [""]
    completer = ShellComplete(cli, {}, "kubectl simyard", "_KUBECTL_SIMYARD_COMPLETE")
    for item in completer.get_completions(words, incomplete):
        say(f"{item.value}\t{item.help}" if item.help else item.value)
    say(":4")
