# SPDX-License-Identifier: Apache-2.0
"""Role ``simyard cleanup``, which removes the objects of Simyard from an external broker after an uninstallation."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import click

from simyard.cli.output import say
from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.errors import MessagingError
from simyard.messaging.occi_topology import name_clients_vhost
from simyard.messaging.topology import APISERVER_USER, FRONTEND_USER, build_platform_specs
from simyard_adapter.wire import name_pool_user, name_standalone_user

_QUEUES_PREFIX = "simyard."
_OWN_USERS = (APISERVER_USER, FRONTEND_USER)
_USERS_PREFIXES = (name_pool_user(""), name_standalone_user(""))


@click.command()
@click.option(
    "--amqp-url", envvar="AMQP_URL", required=True, help="The URL of the broker, with the login of an administrator."
)
@click.option(
    "--amqp-management-url", envvar="AMQP_MANAGEMENT_URL", required=True, help="The URL of the broker's management API."
)
@click.option("--amqp-ca-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), envvar="AMQP_CA_FILE",
              help="The CA certificate of the broker, for amqps.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Delete the objects. Without this option they are only listed.")
def cleanup(amqp_url: str, amqp_management_url: str, amqp_ca_file: Path | None, yes: bool) -> None:
    """Remove Simyard's users, queues and exchanges from the virtual host of the URL, and delete that of OCCI clients.

    Uninstall the release first, because a running operator creates them again. The virtual host of the URL stays.
    """
    try:
        access = BrokerAccess.from_url(amqp_url, amqp_management_url, amqp_ca_file)
        found = asyncio.run(_clean_up(access, delete=yes))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except MessagingError as error:
        say(str(error), err=True)
        sys.exit(1)
    for line in found:
        say(f"{'deleted' if yes else 'would delete'} {line}")
    if not found:
        say("the broker has no objects of Simyard")


async def _clean_up(access: BrokerAccess, *, delete: bool) -> list[str]:
    """Find Simyard's objects at the broker, delete them if ``delete`` is True, and return their names.

    A user with permissions on other virtual hosts is not deleted.
    """
    clients = access.enter_vhost(name_clients_vhost(access.vhost))
    async with contextlib.aclosing(BrokerAdmin(access)) as admin, contextlib.aclosing(BrokerAdmin(clients)) as occi:
        ours = {access.vhost, clients.vhost}
        users = [
            name
            for name in sorted(await admin.list_permitted_users())
            if (name in _OWN_USERS or name.startswith(_USERS_PREFIXES)) and await admin.list_vhosts_of(name) <= ours
        ]
        queues = sorted(await admin.list_queues(_QUEUES_PREFIX))
        exchanges = sorted(await admin.list_exchanges() & {spec.name for spec in build_platform_specs().exchanges})
        has_clients = clients.vhost in await admin.list_vhosts()
        if delete:
            for user in users:  # users come first, because their deletion closes their connections
                await admin.delete_user(user)
            await admin.delete_queues(queues)
            for exchange in exchanges:
                await admin.delete_exchange(exchange)
            for policy in build_platform_specs().policies:
                await admin.delete_policy(policy)
            if has_clients:
                await occi.delete_vhost()
    return [
        *(f"user {name}" for name in users),
        *(f"queue {name}" for name in queues),
        *(f"exchange {name}" for name in exchanges),
        *([f"virtual host {clients.vhost}"] if has_clients else []),
    ]
