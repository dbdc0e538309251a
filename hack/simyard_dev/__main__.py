"""The commands of the development environment; `python -m simyard_dev --help` lists them."""

import argparse
import sys
from pathlib import Path

from simyard_dev import quickstart, tools
from simyard_dev.environment import Environment
from simyard_dev.errors import SetupError
from simyard_dev.platform import Platform


def main(arguments: list[str] | None = None) -> int:
    """Run one command and give its exit status; problems go to stderr."""
    parser = argparse.ArgumentParser(prog="python -m simyard_dev", description=__doc__)
    commands = parser.add_subparsers(required=True)

    command = commands.add_parser("tools", help="build the Go programs that are missing, and print where they are")
    command.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(tools.TOOLS)} (default: all)")
    command.set_defaults(run=_tools)

    command = commands.add_parser("up", help="start a control plane and a broker")
    _add_directory(command)
    command.add_argument("--fresh", action="store_true", help="wipe the state of an earlier start")
    command.set_defaults(run=_up)

    command = commands.add_parser(
        "dev-up", help="start a control plane, a broker, the operator, the apiserver and OCCI frontends"
    )
    _add_directory(command)
    command.set_defaults(run=_dev_up)

    command = commands.add_parser("quickstart", help="the same, and the example service with a pool of workers")
    _add_directory(command)
    command.set_defaults(run=_quickstart)

    command = commands.add_parser("down", help="stop what the others have started; the state stays")
    _add_directory(command)
    command.set_defaults(run=_down)

    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except SetupError as problem:
        print(f"simyard: {problem}", file=sys.stderr)
        return 1
    return 0


def _add_directory(command: argparse.ArgumentParser) -> None:
    command.add_argument("--dir", type=Path, required=True, help="where state, logs and addresses are kept")


def _tools(options: argparse.Namespace) -> None:
    for name, path in sorted(tools.ensure(options.names or tools.TOOLS).items()):
        print(name, path)


def _up(options: argparse.Namespace) -> None:
    environment = Environment(options.dir)
    environment.up(fresh=options.fresh)
    print(f"KUBECONFIG={environment.kubeconfig}")


def _dev_up(options: argparse.Namespace) -> None:
    environment = Environment(options.dir)
    environment.up()
    Platform(environment, occi=True).up()
    print(f"KUBECONFIG={environment.kubeconfig}")


def _quickstart(options: argparse.Namespace) -> None:
    quickstart.run(Environment(options.dir))


def _down(options: argparse.Namespace) -> None:
    environment = Environment(options.dir)
    Platform(environment).down()
    environment.down()


if __name__ == "__main__":
    sys.exit(main())
