"""``kubectl simyard timeline``."""

from __future__ import annotations

import sys
from typing import cast

import click

from simyard.api.cloud_site import CloudSite
from simyard.api.names import CLOUD_SITES, LABEL_POOL, WORKER_POOLS, WORKERS
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.cli.drawing import Format
from simyard.cli.kubectl import Kubectl, KubectlError
from simyard.cli.output import Failure, output_option, print_object, say
from simyard.cli.targets import Target, TargetType
from simyard.cli.timeline import Timeline, timeline_of, to_json, to_text
from simyard.cli.timeline_picture import to_picture

INTERRUPTED = 130
"""What a shell reports of a command that SIGINT has ended, such as ``kubectl get --watch``."""


@click.command("timeline")
@click.argument("target", metavar="POOL", type=TargetType())
@output_option("text", "svg", "png")
@click.option("-w", "--watch", is_flag=True, help="Draw it again as the start goes on, until it is complete.")
@click.pass_obj
def show_timeline(kubectl: Kubectl, target: Target, output: str | None, watch: bool) -> None:
    """Show how a POOL started: the stages of its workers over time."""
    if target.resource is not WORKER_POOLS:
        raise click.UsageError("a timeline is of a pool: give its name")
    output = None if output == "text" else output
    if watch:
        if output:
            raise click.UsageError("--watch is for text: leave out --output")
        _watch(kubectl, target.name)
        return
    found = _timeline(kubectl, WorkerPool.model_validate(kubectl.get(WORKER_POOLS, target.name)))
    if found is None:
        raise Failure(f"pool {target.name} has not started any worker yet")
    if output in ("svg", "png"):
        if output == "png" and sys.stdout.isatty():
            raise click.UsageError("a PNG is not for a terminal: redirect it, as in -o png > timeline.png")
        sys.stdout.buffer.write(to_picture(found, cast(Format, output)))
    elif output:
        print_object(to_json(found), output)
    else:
        say(to_text(found))


def _timeline(kubectl: Kubectl, pool: WorkerPool) -> Timeline | None:
    workers = kubectl.list_all(WORKERS, labels=f"{LABEL_POOL}={pool.metadata.name}")
    return timeline_of(pool, [Worker.model_validate(item) for item in workers], _emulated(kubectl))


def _emulated(kubectl: Kubectl) -> set[str]:
    """The sites whose version says that they are emulated, as far as the user may see sites."""
    try:
        sites = [CloudSite.model_validate(item) for item in kubectl.list_all(CLOUD_SITES)]
    except KubectlError:
        return set()
    return {site.metadata.name for site in sites if "emulated" in site.status.version.lower()}


def _watch(kubectl: Kubectl, name: str) -> None:
    """The status of a pool changes about once a second while it starts; each time the workers are read."""
    drawn = 0
    try:
        for event in kubectl.watch(WORKER_POOLS, name):
            if int(event["metadata"]["resourceVersion"]) <= drawn:
                continue  # drawing takes time: what has been drawn already is not drawn again
            pool = WorkerPool.model_validate(kubectl.get(WORKER_POOLS, name))
            found = _timeline(kubectl, pool)
            click.clear()
            say(to_text(found) if found is not None else f"pool {name} has not started any worker yet")
            if _complete(pool, at_once=not drawn):
                return
            drawn = int(pool.metadata.resource_version)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    raise Failure(f"the watch ended: pool {name} was deleted, or the API server ended it")


def _complete(pool: WorkerPool, *, at_once: bool) -> bool:
    """Whether the start that the pool's spec asks for is over.

    T_m comes last, within a second; of a start that was over when the watch began (``at_once``) it may be unknown.
    """
    start, observed = pool.status.start, pool.status.observed_generation == pool.metadata.generation
    if start is None or start.registered_milliseconds is None or not observed:
        return False
    return at_once or start.published_milliseconds is not None
