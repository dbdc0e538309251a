# SPDX-License-Identifier: Apache-2.0
"""Defines the categories of the standard, and older categories that clients still use.

Core: GFD.183 and GFD.221. Infrastructure: the union of GFD.184 (1.1) and GFD.224 (1.2). Platform: GFD.227. The mixins
    of OpenStack are older than the mixins of OCCI 1.2. ``amqplink`` belongs to Cloud4E. Titles contain no ``,`` ``;``
    ``=``, because
some clients split at these characters. Of the core kinds, only the size of a storage, the device of a storagelink, and
the ends of a link are required.
"""

from __future__ import annotations

from simyard.occi.model import (
    ENTITY,
    ID,
    LINK,
    RESOURCE,
    SOURCE,
    SUMMARY,
    TARGET,
    TITLE,
    Action,
    AttributeSpec,
    Category,
    Kind,
    Mixin,
    ValueType,
)

CORE_SCHEME = "http://schemas.ogf.org/occi/core#"
INFRASTRUCTURE_SCHEME = "http://schemas.ogf.org/occi/infrastructure#"
PLATFORM_SCHEME = "http://schemas.ogf.org/occi/platform#"
COMPUTE_ACTION_SCHEME = "http://schemas.ogf.org/occi/infrastructure/compute/action#"
NETWORK_ACTION_SCHEME = "http://schemas.ogf.org/occi/infrastructure/network/action#"
STORAGE_ACTION_SCHEME = "http://schemas.ogf.org/occi/infrastructure/storage/action#"
NETWORKINTERFACE_ACTION_SCHEME = "http://schemas.ogf.org/occi/infrastructure/networkinterface/action#"
STORAGELINK_ACTION_SCHEME = "http://schemas.ogf.org/occi/infrastructure/storagelink/action#"
APPLICATION_ACTION_SCHEME = "http://schemas.ogf.org/occi/platform/application/action#"
COMPONENT_ACTION_SCHEME = "http://schemas.ogf.org/occi/platform/component/action#"

COMPUTE = INFRASTRUCTURE_SCHEME + "compute"
NETWORK = INFRASTRUCTURE_SCHEME + "network"
STORAGE = INFRASTRUCTURE_SCHEME + "storage"
NETWORKINTERFACE = INFRASTRUCTURE_SCHEME + "networkinterface"
STORAGELINK = INFRASTRUCTURE_SCHEME + "storagelink"
AMQPLINK = INFRASTRUCTURE_SCHEME + "amqplink"
OS_TPL = INFRASTRUCTURE_SCHEME + "os_tpl"
RESOURCE_TPL = INFRASTRUCTURE_SCHEME + "resource_tpl"
IPNETWORK = "http://schemas.ogf.org/occi/infrastructure/network#ipnetwork"
IPNETWORKINTERFACE = "http://schemas.ogf.org/occi/infrastructure/networkinterface#ipnetworkinterface"
SSH_KEY = "http://schemas.ogf.org/occi/infrastructure/credentials#ssh_key"
USER_DATA = "http://schemas.ogf.org/occi/infrastructure/compute#user_data"
OPENSTACK_USER_DATA = "http://schemas.openstack.org/compute/instance#user_data"
OPENSTACK_PUBLIC_KEY = "http://schemas.openstack.org/instance/credentials#public_key"
APPLICATION = PLATFORM_SCHEME + "application"
COMPONENT = PLATFORM_SCHEME + "component"
COMPONENTLINK = PLATFORM_SCHEME + "componentlink"
APP_TPL = PLATFORM_SCHEME + "app_tpl"
RES_TPL = PLATFORM_SCHEME + "res_tpl"
DATABASE = PLATFORM_SCHEME + "database"

TEMPLATES = (OS_TPL, RESOURCE_TPL, APP_TPL, RES_TPL)
"""The parents of templates. An entity has at most one template of each parent."""

_COUNT = "[1-9][0-9]{0,5}"
_AMOUNT = r"[0-9]{1,12}(\.[0-9]{1,12})?"


def _text(name: str, description: str = "", pattern: str = "") -> AttributeSpec:
    return AttributeSpec(name, pattern=pattern, description=description)


def _number(name: str, description: str, pattern: str, required: bool = False) -> AttributeSpec:
    return AttributeSpec(name, ValueType.NUMBER, required=required, pattern=pattern, description=description)


def _shown(name: str, description: str = "", pattern: str = "") -> AttributeSpec:
    return AttributeSpec(name, mutable=False, pattern=pattern, description=description)


def _once(name: str, description: str) -> AttributeSpec:
    return AttributeSpec(name, mutable=False, required=True, description=description)


def _state(kind: str, states: str) -> tuple[AttributeSpec, AttributeSpec]:
    return (
        _shown(f"occi.{kind}.state", "Current state", states),
        _shown(f"occi.{kind}.state.message", "Why it is in this state"),
    )


def _ids(*actions: Action) -> tuple[str, ...]:
    return tuple(action.id for action in actions)


CORE_KINDS = (
    Kind(
        CORE_SCHEME,
        "entity",
        "Entity",
        "/entity/",
        attributes=(_shown(ID, "Identifier"), _text(TITLE, "Display name")),
    ),
    Kind(CORE_SCHEME, "resource", "Resource", "/resource/", ENTITY, (_text(SUMMARY, "What it is"),)),
    Kind(
        CORE_SCHEME,
        "link",
        "Link",
        "/link/",
        ENTITY,
        (_once(SOURCE, "The resource that it goes out from"), _once(TARGET, "What it leads to: any URI")),
    ),
)

COMPUTE_ACTIONS = (
    Action(COMPUTE_ACTION_SCHEME, "start", "Start"),
    Action(COMPUTE_ACTION_SCHEME, "stop", "Stop", (_text("method", "", "graceful|acpioff|poweroff"),)),
    Action(COMPUTE_ACTION_SCHEME, "restart", "Restart", (_text("method", "", "graceful|warm|cold"),)),
    Action(COMPUTE_ACTION_SCHEME, "suspend", "Suspend", (_text("method", "", "hibernate|suspend"),)),
    Action(COMPUTE_ACTION_SCHEME, "save", "Save", (_text("method", "", "hot|deferred"), _text("name", "Of the image"))),
)
NETWORK_ACTIONS = (Action(NETWORK_ACTION_SCHEME, "up", "Up"), Action(NETWORK_ACTION_SCHEME, "down", "Down"))
STORAGE_ACTIONS = (
    Action(STORAGE_ACTION_SCHEME, "online", "Online"),
    Action(STORAGE_ACTION_SCHEME, "offline", "Offline"),
    Action(STORAGE_ACTION_SCHEME, "backup", "Backup"),
    Action(STORAGE_ACTION_SCHEME, "snapshot", "Snapshot"),
    Action(STORAGE_ACTION_SCHEME, "resize", "Resize", (_number("size", "GB", _AMOUNT, required=True),)),
)
NETWORKINTERFACE_ACTIONS = (
    Action(NETWORKINTERFACE_ACTION_SCHEME, "up", "Up"),
    Action(NETWORKINTERFACE_ACTION_SCHEME, "down", "Down"),
)
STORAGELINK_ACTIONS = (
    Action(STORAGELINK_ACTION_SCHEME, "up", "Up"),
    Action(STORAGELINK_ACTION_SCHEME, "down", "Down"),
)
APPLICATION_ACTIONS = (
    Action(APPLICATION_ACTION_SCHEME, "start", "Start"),
    Action(APPLICATION_ACTION_SCHEME, "stop", "Stop"),
)
COMPONENT_ACTIONS = (
    Action(COMPONENT_ACTION_SCHEME, "start", "Start"),
    Action(COMPONENT_ACTION_SCHEME, "stop", "Stop"),
)

INFRASTRUCTURE_KINDS = (
    Kind(
        INFRASTRUCTURE_SCHEME,
        "compute",
        "Compute",
        "/compute/",
        RESOURCE,
        (
            _text("occi.compute.architecture", "Of the processor: x86 or x64"),  # other values are permitted
            _number("occi.compute.cores", "Cores; no site can change them later", _COUNT),
            _text("occi.compute.hostname", "Host name"),
            _number("occi.compute.share", "Relative share of the processor", _AMOUNT),
            _number("occi.compute.speed", "GHz of the processor", _AMOUNT),
            _number("occi.compute.memory", "GB of memory; no site can change it later", _AMOUNT),
            *_state("compute", "active|inactive|suspended|error"),
        ),
        _ids(*COMPUTE_ACTIONS),
    ),
    Kind(
        INFRASTRUCTURE_SCHEME,
        "network",
        "Network",
        "/network/",
        RESOURCE,
        (
            _number("occi.network.vlan", "802.1q tag", "[0-9]{1,4}"),
            _text("occi.network.label", "Tag of the network"),
            *_state("network", "active|inactive|error"),
        ),
        _ids(*NETWORK_ACTIONS),
    ),
    Kind(
        INFRASTRUCTURE_SCHEME,
        "storage",
        "Storage",
        "/storage/",
        RESOURCE,
        (
            _number("occi.storage.size", "GB", _AMOUNT, required=True),
            *_state("storage", "online|offline|error"),
        ),
        _ids(*STORAGE_ACTIONS),
    ),
    Kind(
        INFRASTRUCTURE_SCHEME,
        "networkinterface",
        "Network interface",
        "/networkinterface/",
        LINK,
        (
            _shown("occi.networkinterface.interface", "Name in the machine"),
            _text("occi.networkinterface.mac", "Address", "([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}"),
            *_state("networkinterface", "active|inactive|error"),
        ),
        _ids(*NETWORKINTERFACE_ACTIONS),
    ),
    Kind(
        INFRASTRUCTURE_SCHEME,
        "storagelink",
        "Storage link",
        "/storagelink/",
        LINK,
        (
            AttributeSpec("occi.storagelink.deviceid", required=True, description="Device in the machine"),
            _text("occi.storagelink.mountpoint", "Where it is mounted"),
            *_state("storagelink", "active|inactive|error"),
        ),
        _ids(*STORAGELINK_ACTIONS),
    ),
    Kind(
        INFRASTRUCTURE_SCHEME,
        "amqplink",
        "AMQP link",
        "/amqplink/",
        LINK,
        (AttributeSpec("occi.amqplink.queue", required=True, description="Queue of the service"),),
    ),
)

PLATFORM_KINDS = (
    Kind(
        PLATFORM_SCHEME,
        "application",
        "Application",
        "/application/",
        RESOURCE,
        (
            _text("occi.app.name", "Name"),
            _text("occi.app.context", "Part of its URL"),
            _shown("occi.app.url", "Where it is reached"),
            *_state("app", "active|inactive|error"),
        ),
        _ids(*APPLICATION_ACTIONS),
    ),
    Kind(
        PLATFORM_SCHEME,
        "component",
        "Component",
        "/component/",
        RESOURCE,
        _state("component", "active|inactive|error"),
        _ids(*COMPONENT_ACTIONS),
    ),
    Kind(PLATFORM_SCHEME, "componentlink", "Component link", "/componentlink/", LINK),
)


def _of_id(category_id: str) -> tuple[str, str]:
    scheme, _, term = category_id.rpartition("#")
    return scheme + "#", term


def _mixin(category_id: str, title: str, location: str, applies: tuple[str, ...], *attributes: AttributeSpec) -> Mixin:
    return Mixin(*_of_id(category_id), title, location, applies=applies, attributes=attributes)


MIXINS = (
    _mixin(OS_TPL, "Operating system template", "/os_tpl/", (COMPUTE,)),
    _mixin(RESOURCE_TPL, "Resource template", "/resource_tpl/", (COMPUTE,)),
    _mixin(
        IPNETWORK,
        "IP network",
        "/ipnetwork/",
        (NETWORK,),
        _text("occi.network.address", "CIDR"),
        _text("occi.network.gateway", "Address"),
        _text("occi.network.allocation", "", "dynamic|static"),
    ),
    _mixin(
        IPNETWORKINTERFACE,
        "IP network interface",
        "/ipnetworkinterface/",
        (NETWORKINTERFACE,),
        _text("occi.networkinterface.address", "Address"),
        _text("occi.networkinterface.gateway", "Address"),
        _text("occi.networkinterface.allocation", "", "dynamic|static"),
    ),
    _mixin(
        SSH_KEY,
        "SSH key",
        "/ssh_key/",
        (COMPUTE,),
        AttributeSpec("occi.credentials.ssh.publickey", required=True, description="In the form of authorized_keys"),
    ),
    _mixin(USER_DATA, "User data", "/user_data/", (COMPUTE,), _once("occi.compute.userdata", "For cloud-init")),
    _mixin(
        OPENSTACK_USER_DATA,
        "User data of OpenStack",
        "/openstack_user_data/",
        (COMPUTE,),
        _once("org.openstack.compute.user_data", "For cloud-init in base64"),
    ),
    _mixin(
        OPENSTACK_PUBLIC_KEY,
        "SSH key of OpenStack",
        "/openstack_public_key/",
        (COMPUTE,),
        _text("org.openstack.credentials.publickey.name", "Name"),
        _once("org.openstack.credentials.publickey.data", "In the form of authorized_keys"),
    ),
    _mixin(APP_TPL, "Application template", "/app_tpl/", (APPLICATION,)),
    _mixin(RES_TPL, "Platform resource template", "/res_tpl/", (APPLICATION, COMPONENT)),
    _mixin(DATABASE, "Database", "/database/", (COMPONENT,), _text("occi.database.version", "Version")),
)

STANDARD: tuple[Category, ...] = (
    *CORE_KINDS,
    *INFRASTRUCTURE_KINDS,
    *PLATFORM_KINDS,
    *MIXINS,
    *COMPUTE_ACTIONS,
    *NETWORK_ACTIONS,
    *STORAGE_ACTIONS,
    *NETWORKINTERFACE_ACTIONS,
    *STORAGELINK_ACTIONS,
    *APPLICATION_ACTIONS,
    *COMPONENT_ACTIONS,
)
"""All categories: core, infrastructure, platform, their mixins and actions, and ``amqplink``."""
