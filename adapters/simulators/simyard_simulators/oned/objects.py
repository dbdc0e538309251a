# SPDX-License-Identifier: Apache-2.0
"""Defines the objects of a simulated cloud except VMs: users, quotas, templates, images, networks, hosts, ..."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from simyard_simulators.oned.states import Code, RefusedError, not_authorized
from simyard_simulators.oned.template import Template, text

ADMIN_GROUP = 0
MAX_TOKENS = 10
"""The value of ``LoginTokenPool::MAX_TOKENS``; expired tokens do not count."""

_RIGHTS = ("USE", "MANAGE", "ADMIN")


@dataclass(slots=True)
class Permissions:
    """Nine bits: use, manage, admin for the owner, the group and others; a new object has umask 177 (``um-``)."""

    bits: list[bool] = field(default_factory=lambda: [True, True, False] + [False] * 6)

    @classmethod
    def of(cls, octal: str) -> Permissions:
        """Read the form ``"604"``: 4 is use, 2 manage, 1 admin."""
        return cls([bool(int(digit) & mask) for digit in octal for mask in (4, 2, 1)])

    def to_xml(self) -> str:
        """Return the element PERMISSIONS."""
        names = [f"{whose}_{right}" for whose in ("OWNER", "GROUP", "OTHER") for right in "UMA"]
        inner = "".join(f"<{name}>{int(bit)}</{name}>" for name, bit in zip(names, self.bits, strict=True))
        return f"<PERMISSIONS>{inner}</PERMISSIONS>"


class Quota:
    """The VM quota of a user or group: the limit of each metric (no limit if it is -2 or absent), and the use."""

    METRICS = ("VMS", "RUNNING_VMS", "MEMORY", "RUNNING_MEMORY", "CPU", "RUNNING_CPU")

    def __init__(self) -> None:
        self.limits: dict[str, float] = {}
        self.used: dict[str, float] = dict.fromkeys(self.METRICS, 0.0)

    def check(self, request: Mapping[str, float], defaults: Mapping[str, float]) -> str:
        """Return the reason why the request exceeds the quota, or ""."""
        for metric in self.METRICS:
            limit = self.limits.get(metric, defaults.get(metric, -2.0))
            if metric in request and limit >= 0 and self.used[metric] + request[metric] > limit:
                return f"limit of {limit:g} reached for {metric} quota in VM"
        return ""

    def add(self, request: Mapping[str, float], sign: int = 1) -> None:
        """Add a request to the amounts in use; subtract it with sign -1."""
        for metric, amount in request.items():
            self.used[metric] += sign * amount

    def to_xml(self) -> str:
        """Return the element VM_QUOTA."""
        if not self.limits and not any(self.used.values()):
            return "<VM_QUOTA/>"
        values = {metric: self.limits.get(metric, -1.0) for metric in self.METRICS}
        values |= {f"{metric}_USED": used for metric, used in self.used.items()}
        inner = "".join(f"<{name}>{value:g}</{name}>" for name, value in sorted(values.items()))
        return f"<VM_QUOTA><VM>{inner}</VM></VM_QUOTA>"


@dataclass(slots=True)
class Group:
    """A group of users; ``create`` are the kinds that its members may create (its ACL rules)."""

    oid: int
    name: str
    create: frozenset[str] = frozenset({"VM", "TEMPLATE", "IMAGE", "NET"})
    quota: Quota = field(default_factory=Quota)
    users: list[int] = field(default_factory=list)

    def to_xml(self, with_quota: bool = True) -> str:
        """Return the element GROUP."""
        users = "".join(f"<ID>{uid}</ID>" for uid in self.users)
        quotas = _quotas(self.quota) if with_quota else ""
        return (
            f"<GROUP><ID>{self.oid}</ID><NAME>{text(self.name)}</NAME><TEMPLATE/><USERS>{users}</USERS><ADMINS/>"
            f"{quotas}</GROUP>"
        )


@dataclass(slots=True)
class Token:
    """A login token: ``expires`` in seconds since the epoch, or -1 for never."""

    value: str
    expires: float
    egid: int = -1


@dataclass(slots=True)
class User:
    """A user with the driver ``core``. ``create`` replaces the rights of the groups if it is set."""

    oid: int
    name: str
    password: str
    groups: list[int]
    create: frozenset[str] | None = None
    tokens: list[Token] = field(default_factory=list)
    quota: Quota = field(default_factory=Quota)

    @property
    def gid(self) -> int:
        """The id of the primary group."""
        return self.groups[0]

    @property
    def is_admin(self) -> bool:
        """True for members of the group oneadmin, who may do everything."""
        return ADMIN_GROUP in self.groups

    def authenticates(self, secret: str, now: float) -> bool:
        """Return True if the second part of a session is the password or a valid token."""
        return secret == self.password or any(
            token.value == secret and (token.expires < 0 or now < token.expires) for token in self.tokens
        )

    def login(self, value: str, seconds: int, egid: int, now: float) -> str:
        """Apply ``one.user.login``: create a token (seconds > 0, or -1), or revoke it (0).

        Raises:
            RefusedError: The same refusals as oned's.
        """
        if seconds == 0:
            if value and not any(token.value == value for token in self.tokens):
                raise RefusedError(Code.XML_RPC_API, f"Could not find token: {value}")
            self.tokens = [token for token in self.tokens if value and token.value != value]
            return value
        if seconds < -1:
            raise RefusedError(Code.XML_RPC_API, "Wrong valid period for token")
        if egid != -1 and egid not in self.groups and not self.is_admin:
            raise RefusedError(Code.XML_RPC_API, "EGID is not in user group list")
        self.tokens = [token for token in self.tokens if token.expires < 0 or now <= token.expires]
        if len(self.tokens) >= MAX_TOKENS:
            raise RefusedError(Code.XML_RPC_API, "Max number of tokens limit reached.")
        token = Token(value or secrets.token_hex(32), now + seconds if seconds > 0 else -1, egid)
        self.tokens.append(token)
        return token.value

    def to_xml(self, gname: str, with_quota: bool = True) -> str:
        """Return the element USER; it never contains the password."""
        groups = "".join(f"<ID>{gid}</ID>" for gid in self.groups)
        tokens = "".join(
            f"<LOGIN_TOKEN><TOKEN>{text(token.value)}</TOKEN><EXPIRATION_TIME>{int(token.expires)}</EXPIRATION_TIME>"
            f"<EGID>{token.egid}</EGID></LOGIN_TOKEN>"
            for token in self.tokens
        )
        quotas = _quotas(self.quota) if with_quota else ""
        return (
            f"<USER><ID>{self.oid}</ID><GID>{self.gid}</GID><GROUPS>{groups}</GROUPS><GNAME>{text(gname)}</GNAME>"
            f"<NAME>{text(self.name)}</NAME><PASSWORD>{'x' * 8}</PASSWORD><AUTH_DRIVER>core</AUTH_DRIVER>"
            f"<ENABLED>1</ENABLED>{tokens}<TEMPLATE/>{quotas}</USER>"
        )


def _quotas(quota: Quota) -> str:
    return (
        f"<DATASTORE_QUOTA/><NETWORK_QUOTA/>{quota.to_xml()}<IMAGE_QUOTA/>"
        "<DEFAULT_USER_QUOTAS><DATASTORE_QUOTA/><NETWORK_QUOTA/><VM_QUOTA/><IMAGE_QUOTA/></DEFAULT_USER_QUOTAS>"
    )


@dataclass(slots=True)
class Owned:
    """An object with an owner and permissions: a template, an image, a network, a VM."""

    oid: int
    name: str
    uid: int
    gid: int
    uname: str
    gname: str
    permissions: Permissions

    def owner_xml(self) -> str:
        """Return the elements ID to NAME, with which the XML of all objects begins."""
        return (
            f"<ID>{self.oid}</ID><UID>{self.uid}</UID><GID>{self.gid}</GID><UNAME>{text(self.uname)}</UNAME>"
            f"<GNAME>{text(self.gname)}</GNAME><NAME>{text(self.name)}</NAME>"
        )

    def allows(self, user: User, right: str) -> bool:
        """Return True if the user has USE, MANAGE or ADMIN by its permissions (ACL rules are not simulated)."""
        if user.is_admin:
            return True
        column, bits = _RIGHTS.index(right), self.permissions.bits
        return (
            (user.oid == self.uid and bits[column])
            or (self.gid in user.groups and bits[3 + column])
            or bits[6 + column]
        )

    def authorize(self, user: User, right: str, kind: str) -> None:
        """Raise an error unless :meth:`allows`; ``kind`` is the short name (VM, TEMPLATE, IMAGE, NET)."""
        if not self.allows(user, right):
            raise not_authorized(user.oid, f"Not authorized to perform {right} {kind} [{self.oid}]")


@dataclass(slots=True)
class VmTemplate(Owned):
    """A VM template."""

    template: Template
    registered: int = 0

    def to_xml(self) -> str:
        """Return the element VMTEMPLATE."""
        return (
            f"<VMTEMPLATE>{self.owner_xml()}{self.permissions.to_xml()}<REGTIME>{self.registered}</REGTIME>"
            f"{self.template.to_xml('TEMPLATE')}</VMTEMPLATE>"
        )


@dataclass(slots=True)
class Image(Owned):
    """An image; its states are oned's numbers (1 READY, 2 USED, 4 LOCKED, 5 ERROR)."""

    size_mib: int = 2048
    state: int = 1
    persistent: bool = False

    def to_xml(self) -> str:
        """Return the element IMAGE."""
        return (
            f"<IMAGE>{self.owner_xml()}{self.permissions.to_xml()}<TYPE>0</TYPE><DISK_TYPE>0</DISK_TYPE>"
            f"<PERSISTENT>{int(self.persistent)}</PERSISTENT><REGTIME>0</REGTIME><MODTIME>0</MODTIME>"
            f"<SOURCE>/var/lib/one/datastores/1/{self.oid}</SOURCE><PATH/><FORMAT>qcow2</FORMAT><FS/>"
            f"<SIZE>{self.size_mib}</SIZE><STATE>{self.state}</STATE><PREV_STATE>{self.state}</PREV_STATE>"
            "<RUNNING_VMS>0</RUNNING_VMS><CLONING_OPS>0</CLONING_OPS><CLONING_ID>-1</CLONING_ID>"
            "<TARGET_SNAPSHOT>-1</TARGET_SNAPSHOT><DATASTORE_ID>1</DATASTORE_ID><DATASTORE>default</DATASTORE>"
            "<VMS/><CLONES/><APP_CLONES/><TEMPLATE/><SNAPSHOTS/></IMAGE>"
        )


@dataclass(slots=True)
class Network(Owned):
    """A network with ``leases`` addresses of 10.<id>.0.0/16."""

    leases: int = 65_000
    used: int = 0

    def to_xml(self) -> str:
        """Return the element VNET."""
        return (
            f"<VNET>{self.owner_xml()}{self.permissions.to_xml()}<CLUSTERS><ID>0</ID></CLUSTERS>"
            "<BRIDGE>br0</BRIDGE><BRIDGE_TYPE>linux</BRIDGE_TYPE><STATE>1</STATE><PREV_STATE>1</PREV_STATE>"
            "<PARENT_NETWORK_ID/><VN_MAD>bridge</VN_MAD><PHYDEV/><VLAN_ID/><OUTER_VLAN_ID/>"
            "<VLAN_ID_AUTOMATIC>0</VLAN_ID_AUTOMATIC><OUTER_VLAN_ID_AUTOMATIC>0</OUTER_VLAN_ID_AUTOMATIC>"
            f"<USED_LEASES>{self.used}</USED_LEASES><VROUTERS/><UPDATED_VMS/><OUTDATED_VMS/><UPDATING_VMS/>"
            f"<ERROR_VMS/><TEMPLATE/><AR_POOL><AR><AR_ID>0</AR_ID><IP>10.{self.oid}.0.1</IP>"
            f"<MAC>02:00:0a:{self.oid:02x}:00:01</MAC><SIZE>{self.leases}</SIZE><TYPE>IP4</TYPE>"
            f"<USED_LEASES>{self.used}</USED_LEASES></AR></AR_POOL></VNET>"
        )


@dataclass(slots=True)
class Host:
    """A host of cluster 0 (``default``); its only simulated states are enabled (2) and disabled (4)."""

    oid: int
    name: str
    cores: float
    memory_mib: int
    enabled: bool = True
    used_cores: float = 0.0
    used_memory_mib: float = 0.0
    vms: dict[int, None] = field(default_factory=dict)
    deploying: int = 0

    def fits(self, cores: float, memory_mib: float) -> bool:
        """Return True if the host has these cores and this memory free."""
        return self.used_cores + cores <= self.cores and self.used_memory_mib + memory_mib <= self.memory_mib

    def to_xml(self) -> str:
        """Return the element HOST: CPU in hundredths of a core, memory in KiB."""
        vms = "".join(f"<ID>{oid}</ID>" for oid in self.vms)
        share = {
            "MEM_USAGE": int(self.used_memory_mib * 1024),
            "CPU_USAGE": int(self.used_cores * 100),
            "TOTAL_MEM": self.memory_mib * 1024,
            "TOTAL_CPU": int(self.cores * 100),
            "MAX_MEM": self.memory_mib * 1024,
            "MAX_CPU": int(self.cores * 100),
            "RUNNING_VMS": len(self.vms),
            "VMS_THREAD": 1,
        }
        inner = "".join(f"<{name}>{value}</{name}>" for name, value in share.items())
        return (
            f"<HOST><ID>{self.oid}</ID><NAME>{text(self.name)}</NAME><STATE>{2 if self.enabled else 4}</STATE>"
            "<PREV_STATE>2</PREV_STATE><IM_MAD>kvm</IM_MAD><VM_MAD>kvm</VM_MAD><CLUSTER_ID>0</CLUSTER_ID>"
            f"<CLUSTER>default</CLUSTER><HOST_SHARE>{inner}<DATASTORES/><PCI_DEVICES/><NUMA_NODES/></HOST_SHARE>"
            f"<VMS>{vms}</VMS><TEMPLATE/><MONITORING/></HOST>"
        )
