"""``set``: change attributes of a running worker, or those with which a pool's workers begin."""

from __future__ import annotations

import click

from simyard.api.names import WORKER_POOLS, WORKERS
from simyard.cli.action import assignment
from simyard.cli.kubectl import Kubectl
from simyard.cli.output import say
from simyard.cli.targets import Target, TargetType


@click.command("set")
@click.argument("target", type=TargetType())
@click.argument("values", nargs=-1, required=True, metavar="NAME=VALUE...")
@click.pass_obj
def set_attributes(kubectl: Kubectl, target: Target, values: tuple[str, ...]) -> None:
    """Set attributes of TARGET, worker/NAME or pool/NAME; NAME=@FILE reads the value from a file.

    Of a worker, mutable attributes change at once, and the values are lost with the worker. Of a pool, spec.attributes
    changes: the pool replaces its workers, a few at a time, by workers that begin with these values.
    """
    if target.resource not in (WORKERS, WORKER_POOLS):
        raise click.UsageError("attributes are set on worker/NAME or pool/NAME: a service has no values of its own")
    declared = target.service(kubectl).spec.interface.attributes
    given = dict(assignment(text, declared, "NAME=VALUE") for text in values)
    if target.resource is WORKER_POOLS:
        kubectl.patch(WORKER_POOLS, target.name, {"spec": {"attributes": given}})
        say(f"workerpool.simyard.dev/{target.name} changed: its workers are replaced a few at a time")
        return
    for name, value in given.items():
        kubectl.put(WORKERS, target.name, f"attributes/{name}", {"value": value})
        say(f"worker.simyard.dev/{target.name}: {name} is set")
    say("a worker that replaces it begins with spec.attributes of the pool: set those to keep a value", err=True)
