# SPDX-License-Identifier: Apache-2.0
"""Command ``set``, which changes attributes of a running worker, or the initial attributes of a pool's workers."""

from __future__ import annotations

import click

from simyard.api.names import WORKER_POOLS, WORKERS
from simyard.cli.action import parse_assignment
from simyard.cli.kubectl import Kubectl
from simyard.cli.output import say
from simyard.cli.targets import Target, TargetType


@click.command("set")
@click.argument("target", type=TargetType())
@click.argument("values", nargs=-1, required=True, metavar="NAME=VALUE...")
@click.pass_obj
def set_attributes(kubectl: Kubectl, target: Target, values: tuple[str, ...]) -> None:
    """Set attributes of TARGET (worker/NAME or pool/NAME); NAME=@FILE reads the value from a file.

    On a worker, the command changes mutable attributes at once, and the values are lost when the worker ends. On a
    pool, the command changes spec.attributes: the pool replaces its workers, a few at a time, with workers that start
    with the new values.
    """
    if target.resource not in (WORKERS, WORKER_POOLS):
        raise click.UsageError("a service has no values of its own: name a worker/NAME or a pool/NAME")
    declared = target.get_service(kubectl).spec.interface.attributes
    given = dict(parse_assignment(text, declared, "NAME=VALUE") for text in values)
    if target.resource is WORKER_POOLS:
        kubectl.patch(WORKER_POOLS, target.name, {"spec": {"attributes": given}})
        say(f"workerpool.simyard.dev/{target.name} changed: the pool replaces its workers, a few at a time")
        return
    for name, value in given.items():
        kubectl.put(WORKERS, target.name, f"attributes/{name}", {"value": value})
        say(f"worker.simyard.dev/{target.name}: {name} is set")
    say(
        "a replacement of this worker starts with the attributes of its pool. To keep a value, set it on the pool too",
        err=True,
    )
