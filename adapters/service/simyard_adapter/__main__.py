# SPDX-License-Identifier: Apache-2.0
"""The command ``simyard-adapter``: runs a worker's adapter, or prints the interface of a connector class.

Exit codes: 0 the adapter ended as asked, 1 any other failure, 2 wrong usage, 3 the bootstrap document or the connector
is wrong, 4 the machine's directory cannot be used, 5 an action does not end and keeps the worker from its work.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Optional, Sequence

from simyard_adapter import __version__
from simyard_adapter.adapter import Adapter
from simyard_adapter.bootstrap import WORKER_UID_VARIABLE, WORKER_VARIABLE, Bootstrap
from simyard_adapter.errors import HungError, MachineError, StartError
from simyard_adapter.logs import LOGGER, configure
from simyard_adapter.python_backend import load_class

EXIT_START = 3
EXIT_MACHINE = 4
EXIT_HUNG = 5


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="simyard-adapter", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the adapter of this worker until it is stopped")
    run.add_argument(
        "--bootstrap",
        required=True,
        metavar="FILE",
        help="the file with the bootstrap document; - reads standard input",
    )
    for option, variable in (("--worker", WORKER_VARIABLE), ("--worker-uid", WORKER_UID_VARIABLE)):
        run.add_argument(
            option,
            default=os.environ.get(variable, ""),
            help=f"the identity of this worker, for a document that several workers share (default: ${variable})",
        )
    run.add_argument(
        "--directory",
        type=Path,
        default=Path(".simyard"),
        help="a directory that only this worker uses (default: %(default)s)",
    )
    run.add_argument("--log-format", choices=("text", "json"), default="text")
    interface = commands.add_parser(
        "interface", help="print the interface of a connector class as JSON, for the manifest"
    )
    interface.add_argument("reference", metavar="module:Class")
    interface.add_argument("--path", type=Path, help="the directory of the module (default: the working directory)")
    given = parser.parse_args(arguments)
    configure(getattr(given, "log_format", "text"))
    try:
        if given.command == "interface":
            found = load_class(given.reference, given.path or Path.cwd())
            print(json.dumps(found.interface.to_json(), indent=2))
        else:
            asyncio.run(_run(_read(given.bootstrap, given.worker, given.worker_uid), given.directory))
    except StartError as error:
        LOGGER.error("%s", error)
        return EXIT_START
    except MachineError as error:
        LOGGER.error("%s", error)
        return EXIT_MACHINE
    except HungError as error:
        LOGGER.error("%s", error)
        return EXIT_HUNG
    return 0


def _read(source: str, worker: str, worker_uid: str) -> Bootstrap:
    try:
        document = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        bootstrap = Bootstrap.from_bytes(document)
        if worker or worker_uid or not (bootstrap.worker and bootstrap.worker_uid):
            return bootstrap.name_worker(worker, worker_uid)
        return bootstrap
    except (OSError, ValueError) as error:
        raise StartError(f"cannot read the bootstrap document {source}: {error}") from None


async def _run(bootstrap: Bootstrap, directory: Path) -> None:
    adapter = Adapter(bootstrap, directory)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, adapter.stop)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(adapter.stop))
    await adapter.run()


if __name__ == "__main__":
    sys.exit(main())
