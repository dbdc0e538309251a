# SPDX-License-Identifier: Apache-2.0
r"""The command ``simyard ROLE``: each process of the platform runs the same image, with a role of its own.

The operator needs a cluster with the CRDs and its RBAC rules. It also needs the credentials of an administrator for a
RabbitMQ with the plugins rabbitmq_management and rabbitmq_event_exchange::

    AMQP_URL=amqps://user:password@broker:5671/ AMQP_CA_FILE=ca.crt AMQP_MANAGEMENT_URL=https://broker:15671 \
        simyard operator --kubeconfig FILE --metrics-port 8080

The operator serves ``/livez``, ``/readyz`` and ``/metrics``. SIGTERM ends it and releases its Lease.
"""

from __future__ import annotations

import gc
from importlib import import_module

import click

GC_THRESHOLD = (20_000, 10, 10)
"""Thresholds of the garbage collector.

With Python's defaults, the collector scans the large caches so often that it uses a tenth of the CPU time.
"""
_ROLES = {
    name: f"simyard.roles.{name}" for name in ("operator", "apiserver", "frontend", "optimiser", "check", "cleanup")
}


class _Roles(click.Group):
    """A group of commands that imports only the role that runs, because each role has large dependencies."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the roles."""
        return sorted(_ROLES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a role; None if the role does not exist."""
        if cmd_name not in _ROLES:
            return None
        command: click.Command = getattr(import_module(_ROLES[cmd_name]), cmd_name)
        return command


@click.group(cls=_Roles)
@click.version_option(package_name="simyard")
def main() -> None:
    """Run one process of Simyard, the platform for simulation software as a service on Kubernetes."""
    gc.set_threshold(*GC_THRESHOLD)
