# SPDX-License-Identifier: Apache-2.0
"""The command ``python -m simyard_sites.emulated serve|stop --directory DIRECTORY``: runs or ends an emulated cloud."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from simyard_sites.emulated import client, daemon
from simyard_sites.emulated.files import CloudFiles
from simyard_sites.emulated.guests import ADAPTER


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m simyard_sites.emulated", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="run an emulated cloud in the background; its site does this by itself")
    stop = commands.add_parser("stop", help="end an emulated cloud and all its machines")
    for command in (serve, stop):
        command.add_argument("--directory", type=Path, required=True, help="the directory of the cloud")
    serve.add_argument("--ready", type=int, required=True, help="file descriptor to write to when the cloud is ready")
    serve.add_argument("--lock", type=int, required=True, help="file descriptor that holds the cloud's lock")
    serve.add_argument(
        "--guest-command", type=json.loads, default=ADAPTER, help="the command of a process guest (a JSON list)"
    )
    arguments = parser.parse_args()
    files = CloudFiles(arguments.directory.resolve())
    if arguments.command == "stop":
        sys.exit(0 if asyncio.run(client.shut_down(files)) else "no emulated cloud runs in this directory")
    os.umask(0o077)
    if os.fork():  # The starter waits for this process; the cloud itself must be no process's child.
        os._exit(0)
    os.setsid()
    asyncio.run(daemon.run(files, arguments.ready, arguments.lock, arguments.guest_command))


if __name__ == "__main__":
    main()
