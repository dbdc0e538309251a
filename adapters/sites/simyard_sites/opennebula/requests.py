# SPDX-License-Identifier: Apache-2.0
"""Builds the call that creates a machine. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from simyard_sites.base import InvalidSpecError, MachineRequest
from simyard_sites.guest import build_context
from simyard_sites.opennebula.catalog import VmTemplate
from simyard_sites.opennebula.ownership import Ownership
from simyard_sites.opennebula.settings import Network, Settings
from simyard_sites.opennebula.templates import Value, render
from simyard_sites.opennebula.wire import RpcCall

SECRETS = ("SIMYARD_BOOTSTRAP", "USER_DATA", "SIMYARD_USER_SCRIPT")
"""The variables of CONTEXT that only the machine should read."""
_OF_AN_IMAGE = ("IMAGE", "IMAGE_ID", "IMAGE_UNAME", "IMAGE_UID")


def build_instantiate(
    request: MachineRequest, template: VmTemplate, settings: Settings, ownership: Ownership
) -> RpcCall:
    """Return the call that creates the machine.

    Raises:
        InvalidSpecError: The request is not possible.
    """
    try:
        attributes = render(_attributes(request, template, settings, ownership))
    except ValueError as error:
        raise InvalidSpecError(f"the bootstrap document is not valid: {error}") from error
    return RpcCall("one.template.instantiate", (template.id, request.name, False, attributes, False))


def _attributes(
    request: MachineRequest, template: VmTemplate, settings: Settings, ownership: Ownership
) -> Iterator[tuple[str, Value]]:
    yield "CPU", f"{request.cpu_millis / 1000:g}" if request.cpu_millis else str(request.cores)
    yield "VCPU", str(request.cores)
    yield "MEMORY", str(request.memory_mib)
    yield "LABELS", ownership.label(request.owner)
    yield "CONTEXT", _context(request, template)
    yield from (("DISK", disk) for disk in _disks(request.image, template, settings))
    yield from (("NIC", _nic(network)) for network in settings.networks)
    yield "SCHED_REQUIREMENTS", settings.host_requirements
    yield "SCHED_DS_REQUIREMENTS", settings.datastore_requirements


def _context(request: MachineRequest, template: VmTemplate) -> dict[str, str]:
    """Return the template's CONTEXT with the variables of the worker; the request replaces the whole CONTEXT."""
    own = {"NETWORK": "YES", **template.context, "SET_HOSTNAME": request.hostname or request.name}
    return own | build_context(request.bootstrap, request.user_data, request.ssh_public_keys)


def _disks(image: str, template: VmTemplate, settings: Settings) -> Iterator[dict[str, str]]:
    """Yield the template's disks, with the image in the first one; nothing if the service names no image."""
    if not image:
        return
    first, *others = [dict(disk) for disk in template.disks] or [{}]
    kept = {key: value for key, value in first.items() if key not in _OF_AN_IMAGE}
    if image.isdecimal():
        yield kept | {"IMAGE_ID": image}
    else:
        yield kept | {"IMAGE": image, "IMAGE_UNAME": settings.image_owner}
    yield from others


def _nic(network: Network) -> dict[str, str]:
    if network.name.isdecimal():
        return {"NETWORK_ID": network.name}
    return {"NETWORK": network.name, "NETWORK_UNAME": network.owner}
