# SPDX-License-Identifier: Apache-2.0
"""Command ``timeline``, which shows how a pool started."""

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
from simyard.cli.output import Failure, make_output_option, print_object, say
from simyard.cli.targets import Target, TargetType
from simyard.cli.timeline import Timeline, build_timeline, to_json, to_text
from simyard.cli.timeline_picture import to_picture

INTERRUPTED = 130
"""The exit code of a command that SIGINT ended, such as ``kubectl get --watch``."""


@click.command("timeline")
@click.argument("target", metavar="POOL", type=TargetType())
@make_output_option("text", "svg", "png")
@click.option("-w", "--watch", is_flag=True, help="Draw again after each change, until the start is complete.")
@click.pass_obj
def show_timeline(kubectl: Kubectl, target: Target, output: str | None, watch: bool) -> None:
    """Show the start of a POOL: the stages of its workers over time."""
    if target.resource is not WORKER_POOLS:
        raise click.UsageError("only a pool has a timeline: name a pool")
    output = None if output == "text" else output
    if watch:
        if output:
            raise click.UsageError("--watch draws text only: leave out --output")
        _watch(kubectl, target.name)
        return
    found = _timeline(kubectl, WorkerPool.model_validate(kubectl.get(WORKER_POOLS, target.name)))
    if found is None:
        raise Failure(f"pool {target.name} has not started any worker yet: try again later, or add --watch")
    if output in ("svg", "png"):
        if output == "png" and sys.stdout.isatty():
            raise click.UsageError("a terminal cannot show a PNG: write it to a file, as in -o png > timeline.png")
        sys.stdout.buffer.write(to_picture(found, cast(Format, output)))
    elif output:
        print_object(to_json(found), output)
    else:
        say(to_text(found))


def _timeline(kubectl: Kubectl, pool: WorkerPool) -> Timeline | None:
    workers = kubectl.list_all(WORKERS, labels=f"{LABEL_POOL}={pool.metadata.name}")
    return build_timeline(pool, [Worker.model_validate(item) for item in workers], _emulated(kubectl))


def _emulated(kubectl: Kubectl) -> set[str]:
    """Return the sites whose version says that they are emulated; no sites if the user may not list sites."""
    try:
        sites = [CloudSite.model_validate(item) for item in kubectl.list_all(CLOUD_SITES)]
    except KubectlError:
        return set()
    return {site.metadata.name for site in sites if "emulated" in site.status.version.lower()}


def _watch(kubectl: Kubectl, name: str) -> None:
    """Draw the timeline after each change of the pool, which is about once a second while the pool starts."""
    drawn = 0
    try:
        for event in kubectl.watch(WORKER_POOLS, name):
            if int(event["metadata"]["resourceVersion"]) <= drawn:
                continue  # drawing takes time, and older versions wait in the queue
            pool = WorkerPool.model_validate(kubectl.get(WORKER_POOLS, name))
            found = _timeline(kubectl, pool)
            click.clear()
            say(to_text(found) if found is not None else f"pool {name} has not started any worker yet")
            if _complete(pool, at_once=not drawn):
                return
            drawn = int(pool.metadata.resource_version)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    raise Failure(f"the watch ended: pool {name} was deleted, or the API server closed the watch")


def _complete(pool: WorkerPool, *, at_once: bool) -> bool:
    """Return true if the start for the pool's present spec is complete.

    T_m is usually known a second after T_r. If T_r was known when the watch began (``at_once``), do not wait for T_m,
    which can be missing.
    """
    start, observed = pool.status.start, pool.status.observed_generation == pool.metadata.generation
    if start is None or start.registered_milliseconds is None or not observed:
        return False
    return at_once or start.published_milliseconds is not None
