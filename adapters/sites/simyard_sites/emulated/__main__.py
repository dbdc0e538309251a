"""``python -m simyard_sites.emulated serve|stop --directory DIRECTORY``: be an emulated cloud, or end one."""

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
    """Run the command that was given."""
    parser = argparse.ArgumentParser(prog="python -m simyard_sites.emulated", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="be a cloud in the background; its site starts it by itself")
    stop = commands.add_parser("stop", help="end a cloud and all its machines")
    for command in (serve, stop):
        command.add_argument("--directory", type=Path, required=True, help="the directory of the cloud")
    serve.add_argument("--ready", type=int, required=True, help="file descriptor to write to when it can be used")
    serve.add_argument("--lock", type=int, required=True, help="file descriptor that holds the cloud's lock")
    serve.add_argument("--guest-command", type=json.loads, default=ADAPTER, help="what a process guest runs (JSON)")
    arguments = parser.parse_args()
    files = CloudFiles(arguments.directory.resolve())
    if arguments.command == "stop":
        sys.exit(0 if asyncio.run(client.shut_down(files)) else "no cloud runs there")
    os.umask(0o077)
    if os.fork():  # the starter waits for this process, and the cloud is nobody's child
        os._exit(0)
    os.setsid()
    asyncio.run(daemon.run(files, arguments.ready, arguments.lock, arguments.guest_command))


if __name__ == "__main__":
    main()
