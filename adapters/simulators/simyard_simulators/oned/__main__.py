# SPDX-License-Identifier: Apache-2.0
"""The command ``python -m simyard_simulators.oned``: serves a simulated oned; it prints its URL when it is ready."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import signal
import ssl
from pathlib import Path

from simyard_simulators.oned.cloud import FIRST_USER
from simyard_simulators.oned.server import Oned
from simyard_simulators.oned.settings import MM_SCHED, STOCK, WIDE, Failure, Settings, Step

_LAST_PORT = 65535
_SCHEDULERS = {"stock": STOCK, "mm_sched": MM_SCHED, "wide": WIDE}


def main() -> None:
    """Serve until SIGINT or SIGTERM."""
    parser = _parser()
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
    if given.tls_key and not given.tls_certificate:
        parser.error("--tls-key needs --tls-certificate")
    try:
        tls = _tls(given.tls_certificate, given.tls_key) if given.tls_certificate else None
    except (OSError, ssl.SSLError) as error:
        parser.error(f"--tls-certificate, --tls-key: {error}")
    oned = Oned(settings, host=given.listen[0], port=given.listen[1], tls=tls)
    if given.auth_file:
        user = oned.cloud.users[FIRST_USER]
        user.name, user.password = given.auth_file
    oned.fill(finished=given.finished)
    try:
        asyncio.run(_serve(oned))
    except OSError as error:
        parser.exit(1, f"{parser.prog}: cannot listen on {':'.join(map(str, given.listen))}: {error.strerror}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m simyard_simulators.oned",
        description="A simulated oned: OpenNebula's XML-RPC API over a cloud in memory. It prints its URL when it "
        "is ready, and serves until SIGINT or SIGTERM. Some templates, images, networks and users exist at the start: "
        "among them the template `worker`, and the user `simyard` with the password `secret`.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    given = parser.add_argument
    given(
        "--listen",
        type=_address,
        default="127.0.0.1:2633",
        metavar="ADDRESS:PORT",
        help="the address and port; port 0 means any free port",
    )
    given("--tls-certificate", type=Path, metavar="FILE", help="the certificate in PEM; with it, the endpoint is https")
    given("--tls-key", type=Path, metavar="FILE", help="the key in PEM, if it is not in the file of the certificate")
    given("--auth-file", type=_login, metavar="FILE", help="a file with USER:PASSWORD of the user beside oneadmin")
    given("--version", default="7.0.0", help="the answer of one.system.version")
    given(
        "--scheduler",
        choices=_SCHEDULERS,
        default="stock",
        help="the scheduler's limits: of 7.x, of 5.12 to 6.10, or none",
    )
    given("--time-scale", type=_positive, default=1.0, metavar="SECONDS", help="real seconds per second of the drivers")
    given(
        "--cost-scale",
        type=_not_negative,
        default=1.0,
        metavar="SECONDS",
        help="real seconds per second of the calls' costs",
    )
    given("--answer-seconds", type=_not_negative, default=0.0, metavar="SECONDS", help="the delay before each answer")
    given(
        "--hosts", type=_count, default=10, metavar="COUNT", help="the number of hosts, with 64 cores and 256 GiB each"
    )
    given("--finished", type=_count, default=0, metavar="COUNT", help="the number of VMs that have ended long ago")
    steps = ", ".join(Step)
    given(
        "--fail", type=_failure, action="append", default=[], metavar="STEP=SHARE",
        help=f"VMs that fail, such as boot=0.05; the steps are: {steps}",
    )  # fmt: skip
    given("--seed", type=int, default=0, help="the seed of the random failures")
    return parser


def _tls(certificate: Path, key: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def _address(argument: str) -> tuple[str, int]:
    host, _, port = argument.rpartition(":")
    if not host or not port.isdecimal() or int(port) > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"{argument!r} is not ADDRESS:PORT, such as 127.0.0.1:2633")
    return host.strip("[]"), int(port)


def _login(argument: str) -> tuple[str, str]:
    try:
        name, _, password = Path(argument).read_text().strip().partition(":")
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"{argument}: {error}") from None
    if not name or not password:
        raise argparse.ArgumentTypeError(f"{argument}: the file does not contain USER:PASSWORD")
    return name, password


def _number(argument: str, least: float, *, inclusive: bool) -> float:
    with contextlib.suppress(ValueError):
        number = float(argument)
        if math.isfinite(number) and (number > least or (inclusive and number == least)):
            return number
    raise argparse.ArgumentTypeError(f"{argument!r} is not a number {'from' if inclusive else 'above'} {least:g}")


def _positive(argument: str) -> float:
    return _number(argument, 0, inclusive=False)


def _not_negative(argument: str) -> float:
    return _number(argument, 0, inclusive=True)


def _count(argument: str) -> int:
    if not argument.isdecimal():
        raise argparse.ArgumentTypeError(f"{argument!r} is not a whole number from 0")
    return int(argument)


def _failure(argument: str) -> Failure:
    step, _, share = argument.partition("=")
    if step not in list(Step):
        raise argparse.ArgumentTypeError(f"{step!r} is not a step; the steps are {', '.join(Step)}")
    if _number(share or "1", 0, inclusive=True) > 1:
        raise argparse.ArgumentTypeError(f"{share!r} is not a share from 0 to 1")
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
