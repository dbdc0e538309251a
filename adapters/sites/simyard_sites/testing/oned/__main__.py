"""``python -m simyard_sites.testing.oned``: serve a simulated oned; it prints its URL when it can be used."""

from __future__ import annotations

import argparse
import asyncio
import signal
import ssl
from pathlib import Path

from simyard_sites.testing.oned.cloud import FIRST_USER
from simyard_sites.testing.oned.server import Oned
from simyard_sites.testing.oned.settings import MM_SCHED, STOCK, WIDE, Failure, Settings, Step

_SCHEDULERS = {"stock": STOCK, "mm_sched": MM_SCHED, "wide": WIDE}


def main() -> None:
    """Serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m simyard_sites.testing.oned", description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:2633", help="ADDRESS:PORT; port 0 is any free one")
    parser.add_argument("--tls-certificate", type=Path, help="PEM file; with it the endpoint is https")
    parser.add_argument("--tls-key", type=Path, help="PEM file")
    parser.add_argument("--auth-file", type=Path, help="user:password of the user beside oneadmin (simyard:secret)")
    parser.add_argument("--version", default="7.0.0", help="what one.system.version says")
    parser.add_argument("--scheduler", choices=_SCHEDULERS, default="stock")
    parser.add_argument("--time-scale", type=float, default=1.0, help="seconds here per second of the drivers")
    parser.add_argument("--cost-scale", type=float, default=1.0, help="seconds here per second that calls cost")
    parser.add_argument("--hosts", type=int, default=10)
    parser.add_argument("--finished", type=int, default=0, help="VMs that have ended long ago")
    parser.add_argument("--fail", type=_failure, action="append", default=[], help="STEP=SHARE, as boot=0.05")
    parser.add_argument("--seed", type=int, default=0, help="of the failures")
    given = parser.parse_args()
    settings = Settings(
        version=given.version,
        scheduler=_SCHEDULERS[given.scheduler],
        failures=tuple(given.fail),
        time_scale=given.time_scale,
        cost_scale=given.cost_scale,
        hosts=given.hosts,
        seed=given.seed,
    )
    tls = None
    if given.tls_certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(given.tls_certificate, given.tls_key)
    host, _, port = given.listen.rpartition(":")
    oned = Oned(settings, host=host, port=int(port), tls=tls)
    if given.auth_file:
        user = oned.cloud.users[FIRST_USER]
        user.name, _, user.password = given.auth_file.read_text().strip().partition(":")
    oned.fill(finished=given.finished)
    asyncio.run(_serve(oned))


def _failure(argument: str) -> Failure:
    step, _, share = argument.partition("=")
    return Failure(Step(step), float(share or 1))


async def _serve(oned: Oned) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with oned:
        print(oned.url, flush=True)
        await ended.wait()


if __name__ == "__main__":
    main()
