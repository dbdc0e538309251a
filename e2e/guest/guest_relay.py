# SPDX-License-Identifier: Apache-2.0
"""Carry one connection of a guest, which QEMU passes as standard input, to loopback: guest_relay.py PORT."""

import contextlib
import os
import socket
import sys
import threading

CHUNK = 65536


def main() -> None:
    """Carry data in both directions until either side ends."""
    guest = socket.socket(fileno=os.dup(0))
    with guest, socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as broker:
        threading.Thread(target=carry, args=(broker, guest), daemon=True).start()
        carry(guest, broker)


def carry(source: socket.socket, target: socket.socket) -> None:
    """Copy data until the source ends."""
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    main()
