"""``simyard ROLE``: one image, one command, a role per process.

The operator needs a cluster with the CRDs and its RBAC, and a RabbitMQ with the plugins rabbitmq_management and
rabbitmq_event_exchange, as an administrator::

    AMQP_URL=amqps://user:password@broker:5671/ AMQP_CA_FILE=ca.crt AMQP_MANAGEMENT_URL=https://broker:15671 \\
        simyard operator --kubeconfig FILE --metrics-port 8080

It serves ``/livez``, ``/readyz`` and ``/metrics``; SIGTERM ends it and releases its Lease.
"""

from __future__ import annotations

import gc
from importlib import import_module

import click

GC_THRESHOLD = (20_000, 10, 10)
"""Caches live long: to look at them as often as Python does by itself takes a tenth of the CPU."""
_ROLES = {name: f"simyard.roles.{name}" for name in ("operator", "apiserver", "frontend", "check", "cleanup")}


class _Roles(click.Group):
    """Imports only the role that is asked for: each has large dependencies of its own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the roles."""
        return sorted(_ROLES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a role."""
        if cmd_name not in _ROLES:
            return None
        command: click.Command = getattr(import_module(_ROLES[cmd_name]), cmd_name)
        return command


@click.group(cls=_Roles)
@click.version_option(package_name="simyard")
def main() -> None:
    """Simyard: simulation software as a service, on Kubernetes."""
    gc.set_threshold(*GC_THRESHOLD)
