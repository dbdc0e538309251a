# SPDX-License-Identifier: Apache-2.0
"""Commands of the benchmarks; `python -m simyard_bench --help` lists them."""

from __future__ import annotations

import argparse
import contextlib
import functools
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from simyard.api import names
from simyard.api.base import Json
from simyard_bench import check, limit, peer, plot, profiler, results, start, tables
from simyard_bench.files import pictures as file_pictures
from simyard_bench.files import promises as file_promises
from simyard_bench.files import rows as file_rows
from simyard_bench.files import tables as file_tables
from simyard_bench.files.measuring import Plan, measure
from simyard_bench.occi import pictures, rows
from simyard_bench.occi import promises as occi_promises
from simyard_bench.occi import tables as occi_tables
from simyard_bench.occi.measuring import Effort
from simyard_bench.occi.scenario import Scenario
from simyard_bench.sites import pictures as site_pictures
from simyard_bench.sites import promises as site_promises
from simyard_bench.sites import rows as site_rows
from simyard_bench.sites import scenario as site_scenario
from simyard_bench.sites import tables as site_tables
from simyard_bench.studies import measuring as study_measuring
from simyard_bench.studies import pictures as study_pictures
from simyard_bench.studies import promises as study_promises
from simyard_bench.studies import rows as study_rows
from simyard_bench.studies import tables as study_tables
from simyard_bench.workload import Load, guests_for
from simyard_bench.world import World
from simyard_dev import watchdog
from simyard_dev.errors import SetupError
from simyard_dev.processes import kill_all
from simyard_dev.progress import say

IDLE_FROM = 10_000
IDLE_SECONDS = 60.0


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status; problems go to stderr."""
    parser = argparse.ArgumentParser(prog="python -m simyard_bench", description=__doc__)
    commands = parser.add_subparsers(required=True)

    command = commands.add_parser("start", help="start pools of several sizes and write the results")
    command.add_argument("--n", type=int, nargs="+", required=True, help="numbers of workers; one run for each")
    command.add_argument("--profile", default="instant", help="profile of the emulated cloud (default: instant)")
    command.add_argument("--time-scale", type=float, default=1.0, help="factor on the times of the cloud (default: 1)")
    command.add_argument("--guests", choices=("process", "shared"), help="default: process up to 100 workers")
    command.add_argument("--yardsticks", nargs="*", choices=("limit", "peer"), default=("limit", "peer"))
    command.add_argument(
        "--idle-seconds",
        type=float,
        help=f"seconds of the idle phase (default: {IDLE_SECONDS} from {IDLE_FROM} workers on, else 0)",
    )
    command.add_argument("--profiler", choices=profiler.KINDS, help="profile the operator; the results are not stored")
    command.add_argument("--profiles", type=Path, default=Path(".run/profiles"), help="directory of the profiles")
    _add_results(command, "--results", results.FILE)
    command.add_argument("--keep", type=Path, metavar="DIR", help="keep state and logs in a new directory below DIR")
    command.set_defaults(run=_start)

    command = commands.add_parser("occi", help="grow a pool and ask OCCI frontends at several sizes")
    command.add_argument(
        "--n", type=int, nargs="+", required=True, help="numbers of workers, measured one after the other"
    )
    command.add_argument(
        "--finished", type=int, default=0, help="number of Workers and actions that end before the last cases"
    )
    command.add_argument("--rounds", type=int, default=3, help="rounds; each figure is their median (default: 3)")
    command.add_argument("--seconds", type=float, default=1.0, help="duration of each round (default: 1)")
    idle = "measure once all processes of this machine together use at most this many cores (default: 0.4)"
    command.add_argument("--idle-cores", type=float, default=0.4, help=idle)
    _add_results(command, "--results", rows.FILE)
    command.add_argument("--keep", type=Path, metavar="DIR", help="keep state and logs in a new directory below DIR")
    command.set_defaults(run=_occi)

    command = commands.add_parser("sites", help="start and watch machines at sites, beside bare clients")
    command.add_argument("--sites", nargs="+", choices=site_scenario.SITES, default=site_scenario.SITES)
    sizes = site_scenario.Sizes()
    command.add_argument("--vmis", type=int, nargs="+", default=sizes.vmis, help="starts of VirtualMachineInstances")
    command.add_argument(
        "--controlled-vmis",
        type=int,
        nargs="+",
        default=sizes.controlled_vmis,
        help="the same at KubeVirt's controllers",
    )
    command.add_argument("--pods", type=int, nargs="+", default=sizes.pods, help="starts of pods")
    command.add_argument("--vms", type=int, default=sizes.vms, help="starts of VMs of OpenNebula")
    command.add_argument("--known", type=int, default=sizes.known, help="number of VMs that are polled")
    command.add_argument(
        "--finished", type=int, nargs="+", default=sizes.finished, help="numbers of finished VMs beside the polled ones"
    )
    command.add_argument("--rounds", type=int, default=3, help="rounds; each figure is their median (default: 3)")
    _add_results(command, "--results", site_rows.FILE)
    command.add_argument("--keep", type=Path, metavar="DIR", help="keep state and logs in a new directory below DIR")
    command.set_defaults(run=_sites)

    command = commands.add_parser("files", help="move files through the platform, beside a bare S3 client")
    plan = Plan()
    command.add_argument("--sizes", type=int, nargs="*", default=plan.sizes, help="bytes of the files")
    command.add_argument("--large", type=int, default=plan.large, help="bytes of the largest file, for a worker alone")
    command.add_argument("--actions", type=int, default=plan.actions, help="number of actions that share an input")
    command.add_argument("--rounds", type=int, default=plan.rounds, help="rounds; each figure is their median")
    _add_results(command, "--results", file_rows.FILE)
    command.add_argument("--keep", type=Path, metavar="DIR", help="keep state and logs in a new directory below DIR")
    command.set_defaults(run=_files)

    command = commands.add_parser("studies", help="run many tasks that do nothing, beside Dask, Ray and a Job")
    parts = study_measuring.Plan()
    systems = tuple(study_rows.System)
    command.add_argument("--systems", nargs="+", choices=systems, default=systems, help="default: all")
    command.add_argument("--workers", type=int, nargs="+", default=parts.workers, help="numbers of workers")
    command.add_argument("--tasks", type=int, default=parts.tasks, help=f"number of tasks (default: {parts.tasks})")
    job_help = f"number of completions of the Job (default: {parts.job_tasks})"
    command.add_argument("--job-tasks", type=int, default=parts.job_tasks, help=job_help)
    many_help = f"number of tasks of a second Study; 0 for none (default: {parts.many})"
    command.add_argument("--many", type=int, default=parts.many, help=many_help)
    _add_results(command, "--results", study_rows.FILE)
    command.add_argument("--keep", type=Path, metavar="DIR", help="keep state and logs in a new directory below DIR")
    command.set_defaults(run=_studies)

    command = commands.add_parser("plot", help="draw the results, and write the tables of the document")
    _add_results(command, "--results", results.FILE)
    _add_results(command, "--occi-results", rows.FILE)
    _add_results(command, "--site-results", site_rows.FILE)
    _add_results(command, "--file-results", file_rows.FILE)
    _add_results(command, "--study-results", study_rows.FILE)
    command.add_argument("--images", type=Path, default=Path("docs/images"), help="directory of the pictures")
    command.add_argument("--document", type=Path, default=Path("docs/performance.md"), help="document with the tables")
    command.add_argument("--readme", type=Path, default=Path("README.md"), help="document with the promised figures")
    command.set_defaults(run=_plot)

    command = commands.add_parser("check", help="compare the results with the promised figures; fail if one is not met")
    _add_results(command, "--results", results.FILE)
    _add_results(command, "--occi-results", rows.FILE)
    _add_results(command, "--site-results", site_rows.FILE)
    _add_results(command, "--file-results", file_rows.FILE)
    _add_results(command, "--study-results", study_rows.FILE)
    command.set_defaults(run=_check)

    options = parser.parse_args(arguments)
    # SIGTERM ends the children of this process, as Ctrl-C does; a running event loop has its own handler for Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        options.run(options)
    except SetupError as problem:
        print(f"simyard: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _add_results(command: argparse.ArgumentParser, option: str, file: Path) -> None:
    command.add_argument(option, type=Path, default=file, help=f"file of the results (default: {file.name})")


def _occi(options: argparse.Namespace) -> None:
    with _directory(options.keep) as directory:
        world = World(directory / "occi", occi=True)
        try:
            world.up()
            world.prepare(Load(0, "instant", 1, "shared"))
            scenario = Scenario(world, Effort(options.rounds, options.seconds), options.idle_cores)
            scenario.run(options.n, options.finished)
            rows.store(options.results, scenario.rows)
            say(f"{options.results}: {len(scenario.rows)} cases")
        finally:
            world.down()


def _sites(options: argparse.Namespace) -> None:
    sizes = site_scenario.Sizes(
        options.vmis, options.controlled_vmis, options.pods, options.vms, options.known, options.finished
    )
    with _directory(options.keep) as directory:
        found = site_scenario.run(directory, options.sites, sizes, options.rounds)
    site_rows.store(options.results, found)
    say(f"{options.results}: {len(found)} cases")


def _files(options: argparse.Namespace) -> None:
    plan = Plan(options.sizes, options.large, actions=options.actions, rounds=options.rounds)
    with _directory(options.keep) as directory, contextlib.closing(measure(directory, plan)) as found:
        for row in found:
            file_rows.store(options.results, [row])


def _studies(options: argparse.Namespace) -> None:
    systems = tuple(map(study_rows.System, options.systems))
    plan = study_measuring.Plan(systems, options.workers, options.tasks, options.job_tasks, options.many)
    with _directory(options.keep) as directory, contextlib.closing(study_measuring.measure(directory, plan)) as found:
        for row in found:
            study_rows.store(options.results, [row])


def _plot(options: argparse.Namespace) -> None:
    runs = results.load(options.results)
    cases = rows.load(options.occi_results)
    sites = site_rows.load(options.site_results)
    files = file_rows.load(options.file_results)
    studies = study_rows.load(options.study_results)
    drawn = (
        *plot.draw(runs, options.images),
        *pictures.draw(cases, options.images),
        *site_pictures.draw(sites, options.images),
        *file_pictures.draw(files, options.images),
        *study_pictures.draw(studies, options.images),
    )
    for file in drawn:
        say(str(file))
    promises = tables.promises(check.verdicts(runs))
    for document, name, text in (
        (options.readme, "promises", promises),
        (options.document, "promises", promises),
        (options.document, "results", tables.results(runs)),
        (options.document, "OCCI promises", tables.promises(occi_promises.verdicts(cases))),
        (options.document, "OCCI results", occi_tables.results(cases)),
        (options.document, "site promises", tables.promises(site_promises.verdicts(sites))),
        (options.document, "site results", site_tables.results(sites)),
        (options.document, "file promises", tables.promises(file_promises.verdicts(files))),
        (options.document, "file results", file_tables.results(files)),
        (options.document, "study promises", tables.promises(study_promises.verdicts(studies))),
        (options.document, "study results", study_tables.results(studies)),
    ):
        tables.write_section(document, name, text)
        say(f"{document}: {name}")


def _check(options: argparse.Namespace) -> None:
    found = check.verdicts(results.load(options.results))
    found += occi_promises.verdicts(rows.load(options.occi_results))
    found += site_promises.verdicts(site_rows.load(options.site_results))
    found += file_promises.verdicts(file_rows.load(options.file_results))
    found += study_promises.verdicts(study_rows.load(options.study_results))
    print(tables.promises(found), end="")
    if any(verdict.met is not True for verdict in found):
        raise SetupError("some promised figures are not measured or not met: see the table")


def _start(options: argparse.Namespace) -> None:
    with _directory(options.keep) as directory:
        for n in options.n:
            load = Load(n, options.profile, options.time_scale, options.guests or guests_for(n))
            run = _run(directory / f"n{n}", load, options)
            if options.profiler is None:
                results.store(options.results, [run])
                say(f"{options.results}: {run.profile}, {run.n} workers")


def _run(directory: Path, load: Load, options: argparse.Namespace) -> results.Run:
    idle_seconds = options.idle_seconds
    if idle_seconds is None:
        idle_seconds = IDLE_SECONDS if load.n >= IDLE_FROM else 0.0
    chosen = profiler.choose(options.profiler, options.profiles.absolute() / f"{load.profile}-{load.n}")
    world = World(directory, chosen.operator_command)
    try:
        world.up()
        world.prepare(load)
        yardsticks = functools.partial(_yardsticks, world, load.n, options.yardsticks)
        return start.measure(world, load, idle_seconds, chosen.profiling, yardsticks)
    finally:
        world.down()


def _yardsticks(world: World, n: int, wanted: list[str], example: Json) -> start.Yardsticks:
    world.platform.down()
    limit_s = concurrency = peer_s = None
    if "limit" in wanted:
        kubeconfig = world.platform.directory / f"{names.OPERATOR}.kubeconfig"
        limit_s, concurrency = limit.limit(world, kubeconfig, example, n)
    world.environment.down()
    if "peer" in wanted:
        peer_s = peer.peer(world.environment.directory / "peer", n)
    return start.Yardsticks(limit_s, concurrency, peer_s)


@contextlib.contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    """Yield a directory. The processes with a pid file below it are killed when this process ends."""
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="simyard-bench-", dir=keep)).absolute()
    watching = watchdog.start(directory)
    try:
        yield directory
    except BaseException:
        keep = directory
        say(f"state and logs are in {directory}")
        raise
    finally:
        kill_all(directory)
        watching.kill()
        watching.wait()
        if not keep:
            shutil.rmtree(directory)


if __name__ == "__main__":
    sys.exit(main())
