# SPDX-License-Identifier: Apache-2.0
"""Implements ``one.template.instantiate``, which creates a VM from a template and merged attributes, with all checks.

The checks have the order and the codes of ``RequestManagerVMTemplate.cc`` of oned 6.10.
"""

from __future__ import annotations

from simyard_simulators.oned.cloud import Cloud
from simyard_simulators.oned.lifecycle import LifeCycle, running_request
from simyard_simulators.oned.machine import Vm
from simyard_simulators.oned.objects import Image, Network, Permissions, User
from simyard_simulators.oned.states import Code, RefusedError, absent, not_authorized
from simyard_simulators.oned.template import Template, TemplateError, Vector, parse
from simyard_simulators.oned.variables import VariableError, substitute

KIND = "virtual machine template"
INVALID_NAME = "&|:\\\";/'#{}$<>"
"""The value of ``PoolObjectSQL::INVALID_NAME_CHARS``."""
MAX_NAME = 128

RESTRICTED = ("CONTEXT/FILES", "NIC/MAC", "NIC/VLAN_ID", "NIC/BRIDGE", "DISK/SOURCE", "DISK/TOTAL_BYTES_SEC",
              "CPU_COST", "MEMORY_COST", "DISK_COST", "PCI", "EMULATOR", "RAW")  # fmt: skip
"""A part of VM_RESTRICTED_ATTR of the default oned.conf: attributes that only users in the group oneadmin may set."""

_OF_VM = frozenset({
    "CPU", "VCPU", "MEMORY", "DISK", "NIC", "NIC_ALIAS", "NIC_DEFAULT", "OS", "CONTEXT", "GRAPHICS", "VIDEO",
    "FEATURES", "RAW", "INPUT", "CPU_MODEL", "TOPOLOGY", "PCI", "SNAPSHOT", "TEMPLATE_ID", "BACKUP_CONFIG",
    "NUMA_NODE", "VMGROUP", "SUBMIT_ON_HOLD", "IMPORTED", "CLONING_TEMPLATE_ID", "TM_MAD_SYSTEM",
})  # fmt: skip
"""The attributes that are stored in TEMPLATE of the VM. All others are in USER_TEMPLATE."""


def instantiate(
    cloud: Cloud, life: LifeCycle, user: User, template_id: int, name: str, hold: bool, extra: str, persistent: bool
) -> Vm:
    """Create a VM.

    Raises:
        RefusedError: The same refusals as oned's: 0x0400 for an unknown template, 0x2000 for an unreadable template,
            0x0200 for rights, restricted attributes and quota, 0x4000 for an object that cannot be allocated (name,
            capacity, image, network).
    """
    source = cloud.templates.get(template_id)
    if source is None:
        raise absent(KIND, template_id)
    try:
        added = parse(extra)
    except TemplateError as error:
        raise RefusedError(Code.INTERNAL, str(error)) from error
    restricted = "" if user.is_admin else _restricted(added, source.template)
    if restricted:
        raise not_authorized(user.oid, f"User Template includes a restricted attribute {restricted}")
    template = source.template.copy()
    template.merge(added)
    source.authorize(user, "USE", "TEMPLATE")
    create = user.create if user.create is not None else frozenset().union(
        *(cloud.groups[gid].create for gid in user.groups)
    )  # fmt: skip
    for kind in ("TEMPLATE",) if extra and not user.is_admin else ():
        if kind not in create:
            raise not_authorized(user.oid, f"Not authorized to perform CREATE {kind}")
    for image in filter(None, (_image(cloud, user, disk) for disk in template.vectors("DISK"))):
        image.authorize(user, "USE", "IMAGE")
    for network in filter(None, (_network(cloud, user, nic) for nic in template.vectors("NIC"))):
        network.authorize(user, "USE", "NET")
    cores = _positive(template, "CPU")
    if template.get("VCPU"):
        _positive(template, "VCPU", whole=True)
    memory = _positive(template, "MEMORY", whole=True)
    request = {"VMS": 1, "MEMORY": memory, "CPU": cores, "RUNNING_VMS": 1, "RUNNING_MEMORY": memory,
               "RUNNING_CPU": cores}  # fmt: skip
    quotas = cloud.quotas(user.oid, user.gid)
    for whose, quota, defaults in quotas:
        reason = quota.check(request, defaults)
        if reason:
            raise not_authorized(user.oid, f"{whose} {reason}")
    vm = _allocate(cloud, user, template, source.name, template_id, name)
    vm.cores, vm.memory_mib = cores, memory
    for _, quota, _ in quotas:
        quota.add({"VMS": 1, "MEMORY": memory, "CPU": cores} | running_request(vm))
    life.begin(vm, hold, persistent)
    return vm


def check_name(name: str) -> str:
    """Return the reason why a name is not allowed, or ""."""
    if not name:
        return "Invalid NAME, it cannot be empty"
    invalid = next((character for character in name if character in INVALID_NAME), None)
    if invalid is not None:
        return f"Invalid NAME, char '{invalid}' is not allowed"
    return f"Invalid NAME, max length is {MAX_NAME} chars" if len(name.encode()) > MAX_NAME else ""


def _allocate(cloud: Cloud, user: User, template: Template, template_name: str, template_id: int, name: str) -> Vm:
    oid = cloud.next_vm_id()
    name = name or f"{template_name}-{oid}"
    reason = check_name(name)
    if reason:
        raise _allocation(reason)
    template.remove("NAME")
    template.set("TEMPLATE_ID", str(template_id))
    vm_template = Template((key, value) for key, value in template.items() if key in _OF_VM)
    user_template = Template((key, value) for key, value in template.items() if key not in _OF_VM)
    for position, disk in enumerate(vm_template.vectors("DISK")):
        _use_image(cloud, user, disk, position)
    for position, nic in enumerate(vm_template.vectors("NIC")):
        _lease(cloud, user, nic, position, oid)
    vm_template.set("VMID", str(oid))
    vm_template.set("AUTOMATIC_REQUIREMENTS", "(CLUSTER_ID = 0) & !(PUBLIC_CLOUD = YES)")
    gname = cloud.groups[user.gid].name
    vm = Vm(
        oid,
        name,
        user.oid,
        user.gid,
        user.name,
        gname,
        Permissions(),
        vm_template,
        user_template,
        int(cloud.now),
        template_id,
    )
    _contextualise(vm)
    return vm


def _contextualise(vm: Vm) -> None:
    """Replace the variables in CONTEXT and add oned's own: the disk's target, the VM's id, each NIC's network."""
    known = {"NAME": vm.name, "UID": str(vm.uid), "GID": str(vm.gid), "UNAME": vm.uname, "GNAME": vm.gname}

    def single(name: str) -> str:
        return known.get(name) or vm.template.get(name) or vm.user_template.get(name)

    def inner(name: str, key: str, chosen_by: str, wanted: str) -> str:
        """Return "": in this simulation, USER, NETWORK and IMAGE have no attributes."""
        vectors = (vector for vector in vm.template.vectors(name) if not chosen_by or vector.get(chosen_by) == wanted)
        return next(vectors, {}).get(key, "")

    for context in vm.template.vectors("CONTEXT"):
        try:
            context |= {key: substitute(value, single, inner) for key, value in context.items()}
        except VariableError as error:
            raise _allocation(f"Error parsing: CONTEXT. {error}") from error
        if context.get("NETWORK", "").upper() == "YES":
            for position, nic in enumerate(vm.template.vectors("NIC")):
                context |= {f"ETH{position}_IP": nic["IP"], f"ETH{position}_MAC": nic["MAC"]}
        context |= {"DISK_ID": str(len(vm.template.vectors("DISK"))), "TARGET": "hda", "VMID": str(vm.oid)}


def _restricted(added: Template, base: Template) -> str:
    """Return the first restricted attribute whose value differs from the template's; "" if there is none."""
    for restricted in RESTRICTED:
        name, _, key = restricted.partition("/")
        if _values(added, name, key) - _values(base, name, key):
            return name
    return ""


def _values(template: Template, name: str, key: str) -> set[str]:
    """Return the values of an attribute, or of one key of it."""
    if key:
        return {vector[key] for vector in template.vectors(name) if key in vector}
    return {str(value) for each, value in template.items() if each == name}


def _positive(template: Template, name: str, *, whole: bool = False) -> float:
    """Return the value of an attribute that must be a positive number.

    Raises:
        RefusedError: 0x4000 for any other value.
    """
    try:
        value = float(int(template.get(name))) if whole else float(template.get(name))
    except ValueError:
        value = 0.0
    if not value > 0:
        raise _allocation(f"{name} attribute must be a positive {'integer' if whole else 'float or integer'} value.")
    return value


def _allocation(reason: str) -> RefusedError:
    return RefusedError(Code.ALLOCATE, f"Error allocating a new {KIND}. {reason}")


def _image(cloud: Cloud, user: User, disk: Vector) -> Image | None:
    if "IMAGE_ID" in disk:
        number = disk["IMAGE_ID"]
        return cloud.images.get(int(number)) if number.isdecimal() else None
    if "IMAGE" not in disk:
        return None
    owner = _owner(cloud, user, disk, "IMAGE")
    return next((image for image in cloud.images.values() if (image.name, image.uid) == (disk["IMAGE"], owner)), None)


def _network(cloud: Cloud, user: User, nic: Vector) -> Network | None:
    if "NETWORK_ID" in nic:
        number = nic["NETWORK_ID"]
        return cloud.networks.get(int(number)) if number.isdecimal() else None
    owner = _owner(cloud, user, nic, "NETWORK")
    wanted = (nic.get("NETWORK"), owner)
    return next((network for network in cloud.networks.values() if (network.name, network.uid) == wanted), None)


def _owner(cloud: Cloud, user: User, vector: Vector, what: str) -> int:
    """Return the id of the user whose objects a vector names: the user in the vector, else the caller."""
    if f"{what}_UID" in vector:
        number = vector[f"{what}_UID"]
        return int(number) if number.isdecimal() else -1
    if f"{what}_UNAME" in vector:
        other = cloud.user(vector[f"{what}_UNAME"])
        return other.oid if other else -1
    return user.oid


def _use_image(cloud: Cloud, user: User, disk: Vector, position: int) -> None:
    image = _image(cloud, user, disk)
    where = f"DISK {position}: "
    if image is None and "IMAGE_ID" in disk:
        raise _allocation(f"{where}Image with ID: {disk['IMAGE_ID']} does not exist")
    if image is None and "IMAGE" in disk:
        owner = _owner(cloud, user, disk, "IMAGE")
        raise _allocation(
            f"{where}User {user.oid if owner < 0 else owner} does not own an image with name: {disk['IMAGE']} . "
            "Set IMAGE_UNAME or IMAGE_UID of owner in DISK."
        )
    if image is None:
        kind = disk.get("TYPE", "").upper()
        if kind not in ("SWAP", "FS"):
            raise _allocation(f"{where}Unknown disk type {kind}")
    else:
        if image.state not in (1, 2):
            raise _allocation(f"{where}Cannot acquire image {image.oid}, it is in an error or locked state")
        disk |= {"IMAGE": image.name, "IMAGE_ID": str(image.oid), "SIZE": disk.get("SIZE", str(image.size_mib)),
                 "DATASTORE": "default", "DATASTORE_ID": "1", "TYPE": "FILE"}  # fmt: skip
    disk |= {"DISK_ID": str(position), "TARGET": f"vd{chr(ord('a') + position % 26)}"}


def _lease(cloud: Cloud, user: User, nic: Vector, position: int, oid: int) -> None:
    network = _network(cloud, user, nic)
    if network is None and "NETWORK_ID" in nic:
        raise _allocation(f"Virtual network with ID: {nic['NETWORK_ID']} does not exist")
    if network is None:
        owner = _owner(cloud, user, nic, "NETWORK")
        if owner < 0:
            raise _allocation("User set in NETWORK_UNAME does not exist")
        raise _allocation(
            f"User {owner} does not own a network with name: {nic.get('NETWORK', '')} . "
            "Set NETWORK_UNAME or NETWORK_UID of owner in NIC."
        )
    if network.used >= network.leases:
        raise _allocation(f"Cannot get IP/MAC lease from virtual network {network.oid}.")
    number = oid % network.leases + 1
    nic |= {
        "NETWORK": network.name,
        "NETWORK_ID": str(network.oid),
        "NIC_ID": str(position),
        "NAME": f"NIC{position}",
        "SECURITY_GROUPS": nic.get("SECURITY_GROUPS", "0"),
        "IP": nic.get("IP", f"10.{network.oid}.{number >> 8}.{number & 255}"),
        "MAC": f"02:00:0a:{network.oid:02x}:{number >> 8:02x}:{number & 255:02x}",
    }
