# SPDX-License-Identifier: Apache-2.0
"""Targets of commands: ``worker/NAME``, ``pool/NAME`` or ``service/NAME``."""

from __future__ import annotations

from dataclasses import dataclass

import click
from click.shell_completion import CompletionItem

from simyard.api.names import SIMULATION_SERVICES, WORKER_POOLS, WORKERS
from simyard.api.simulation_service import SimulationService
from simyard.cli.kubectl import Kubectl, KubectlError
from simyard_sites.kubernetes.resource import Resource

RESOURCES = {
    "worker": WORKERS,
    "pool": WORKER_POOLS,
    "service": SIMULATION_SERVICES,
}


@dataclass(frozen=True)
class Target:
    """The object that a command is about: its resource and its name."""

    resource: Resource
    name: str

    def get_service(self, kubectl: Kubectl) -> SimulationService:
        """Return the service of the target, which is the target itself or the service to which it belongs."""
        name = self.name
        if self.resource is not SIMULATION_SERVICES:
            name = kubectl.get(self.resource, self.name)["spec"]["serviceRef"]["name"]
        return SimulationService.model_validate(kubectl.get(SIMULATION_SERVICES, name))


class TargetType(click.ParamType[Target]):
    """The type of a command line argument ``KIND/NAME``. A name without a kind is the name of a pool."""

    name = "target"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        """Return the target for a text such as ``pool/NAME``."""
        if isinstance(value, Target):
            return value
        kind, slash, name = str(value).partition("/")
        if not slash:
            kind, name = "pool", kind
        resource = RESOURCES.get(kind) or next(
            (item for item in RESOURCES.values() if kind in (item.plural, item.kind.lower())), None
        )
        if resource is None or not name:
            self.fail(f"{value!r} is not worker/NAME, pool/NAME or service/NAME", param, ctx)
        return Target(resource, name)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the possible kinds; after a kind and a slash, the names of the objects of this kind."""
        kind, slash, start = incomplete.partition("/")
        if not slash:
            return [CompletionItem(f"{word}/") for word in RESOURCES if word.startswith(kind)]
        if kind not in RESOURCES:
            return []
        return [CompletionItem(f"{kind}/{name}") for name in list_names(ctx, RESOURCES[kind]) if name.startswith(start)]


def list_names(ctx: click.Context, resource: Resource) -> list[str]:
    """Return the names of the objects in the user's namespace, for completion; no names if the request fails."""
    kubectl = ctx.obj or Kubectl()
    try:
        return [item["metadata"]["name"] for item in kubectl.list_all(resource)]
    except KubectlError:
        return []
