# SPDX-License-Identifier: Apache-2.0
"""Commands of the development environment; `python -m simyard_dev --help` lists them."""

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simyard_dev import quickstart, tools
from simyard_dev.environment import Environment
from simyard_dev.errors import SetupError
from simyard_dev.platform import Platform
from simyard_dev.progress import say

INTERRUPTED = 128 + signal.SIGINT
"""Exit status after Ctrl-C, as shells report it."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status; problems go to stderr."""
    parser = argparse.ArgumentParser(prog="python -m simyard_dev", description=__doc__)
    commands = parser.add_subparsers(required=True)

    command = commands.add_parser("tools", help="build the missing Go programs and print their paths")
    command.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(tools.TOOLS)} (default: all)")
    command.set_defaults(run=_tools)

    command = commands.add_parser("up", help="start a control plane and a broker")
    _add_directory(command)
    command.add_argument("--fresh", action="store_true", help="delete the state of an earlier start first")
    command.set_defaults(run=_up)

    command = commands.add_parser(
        "dev-up", help="start a control plane, a broker, the operator, the apiserver and OCCI frontends"
    )
    _add_directory(command)
    command.set_defaults(run=_dev_up)

    command = commands.add_parser(
        "quickstart", help="do what dev-up does, and start the example service with a pool of workers"
    )
    _add_directory(command)
    command.set_defaults(run=_quickstart)

    command = commands.add_parser("down", help="stop the servers that the other commands started; their state stays")
    _add_directory(command)
    command.set_defaults(run=_down)

    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except SetupError as problem:
        print(f"simyard: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    return 0


@contextmanager
def _starting(environment: Environment) -> Iterator[None]:
    """Stop the servers that the block has started if the user presses Ctrl-C; earlier servers keep running."""
    was_down = environment.is_down()
    try:
        yield
    except KeyboardInterrupt:
        if was_down:
            say("interrupted: stopping the servers that this command has started")
            _stop(environment)
        raise


def _stop(environment: Environment) -> None:
    Platform(environment).down()
    environment.down()


def _add_directory(command: argparse.ArgumentParser) -> None:
    command.add_argument("--dir", type=Path, required=True, help="directory of state, logs and addresses")


def _tools(options: argparse.Namespace) -> None:
    for name, path in sorted(tools.ensure(options.names or tools.TOOLS).items()):
        print(name, path)


def _up(options: argparse.Namespace) -> None:
    environment = Environment(options.dir)
    with _starting(environment):
        environment.up(fresh=options.fresh)
    print(f"KUBECONFIG={environment.kubeconfig}")


def _dev_up(options: argparse.Namespace) -> None:
    environment = Environment(options.dir)
    with _starting(environment):
        environment.up()
        Platform(environment, occi=True).up()
    print(f"KUBECONFIG={environment.kubeconfig}")


def _quickstart(options: argparse.Namespace) -> None:
    environment = Environment(options.dir)
    with _starting(environment):
        quickstart.run(environment)


def _down(options: argparse.Namespace) -> None:
    _stop(Environment(options.dir))


if __name__ == "__main__":
    sys.exit(main())
