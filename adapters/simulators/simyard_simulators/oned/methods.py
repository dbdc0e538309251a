# SPDX-License-Identifier: Apache-2.0
"""Implements the methods of the API, each with its parameters, checks, effects and costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from simyard_simulators.oned.cloud import Cloud
from simyard_simulators.oned.instantiate import check_name, instantiate
from simyard_simulators.oned.lifecycle import ADMIN_OPERATIONS, LifeCycle, running_request
from simyard_simulators.oned.machine import Vm
from simyard_simulators.oned.objects import Image, Network, Owned, Quota, User, VmTemplate
from simyard_simulators.oned.queries import Result, query_vms, select, vm_pool
from simyard_simulators.oned.states import Code, RefusedError, absent, not_authorized
from simyard_simulators.oned.template import Template, TemplateError, parse
from simyard_simulators.oned.wire import (
    NO_SUCH_METHOD,
    REFUSED,
    TYPE_ERROR,
    Answer,
    Arguments,
    Escaped,
    FaultError,
    Long,
    Parameter,
)

NO_REPLICATION = -1
"""The fifth element of a refusal, the index of a replicated log entry: there is no replication."""

_KINDS = {"VM": "virtual machine", "TEMPLATE": "virtual machine template", "IMAGE": "image", "NET": "virtual network"}


@dataclass(frozen=True, slots=True)
class Done:
    """A completed call: its encoded answer, its cost in ms, a flag for a write, and the number of rows read."""

    answer: Answer
    cost: float = 0.0
    writes: bool = False
    scanned: int = 0


Method = Callable[[User, Arguments], Result]


class Methods:
    """The API over a cloud."""

    def __init__(self, cloud: Cloud, life: LifeCycle) -> None:
        self._cloud = cloud
        self._life = life
        self._methods: dict[str, Method] = {
            "one.system.version": lambda user, _: Result(cloud.settings.version),
            "one.system.config": self._config,
            "one.user.info": self._user_info,
            "one.user.login": self._login,
            "one.user.quota": self._user_quota,
            "one.userquota.info": lambda user, _: Result(_defaults("USER", cloud.default_user_quota)),
            "one.userquota.update": self._default_quota,
            "one.userpool.info": self._user_pool,
            "one.group.info": self._group_info,
            "one.grouppool.info": self._group_pool,
            "one.groupquota.info": lambda user, _: Result(_defaults("GROUP", cloud.default_group_quota)),
            "one.template.info": lambda user, given: self._info(user, given, "TEMPLATE"),
            "one.template.instantiate": self._instantiate,
            "one.templatepool.info": lambda user, given: self._pool(user, given, "TEMPLATE", "VMTEMPLATE_POOL"),
            "one.image.info": lambda user, given: self._info(user, given, "IMAGE"),
            "one.imagepool.info": lambda user, given: self._pool(user, given, "IMAGE", "IMAGE_POOL"),
            "one.vn.info": lambda user, given: self._info(user, given, "NET"),
            "one.vnpool.info": lambda user, given: self._pool(user, given, "NET", "VNET_POOL"),
            "one.host.info": self._host_info,
            "one.hostpool.info": self._host_pool,
            "one.clusterpool.info": self._cluster_pool,
            "one.vm.info": self._vm_info,
            "one.vm.action": self._action,
            "one.vm.recover": self._recover,
            "one.vm.update": self._update,
            "one.vm.rename": self._rename,
            "one.vm.chmod": self._chmod,
            "one.vm.chown": self._chown,
            "one.vmpool.info": lambda user, given: query_vms(cloud, user, given, extended=False),
            "one.vmpool.infoextended": lambda user, given: query_vms(cloud, user, given, extended=True),
            "one.vmpool.infoset": self._info_set,
        }

    def call(self, name: str, parameters: Sequence[Parameter]) -> Done:
        """Execute one call, alone or in a multicall, and return its answer, which can be a refusal.

        Raises:
            FaultError: The answer is an XML-RPC fault and not oned's.
        """
        if name == "system.listMethods":
            return Done([*self._methods, "system.multicall", name])
        method = self._methods.get(name)
        if method is None:
            raise FaultError(NO_SUCH_METHOD, f"Method '{name}' not defined")
        given = Arguments(parameters)
        session = given.string(0)
        try:
            result = method(self._authenticate(session), given)
        except RefusedError as refusal:
            answer: Answer = [
                False,
                f"[{name}] {refusal.message}",
                int(refusal.code),
                refusal.object_id,
                Long(NO_REPLICATION),
            ]
            return Done(answer)
        except TemplateError as error:
            return Done([False, f"[{name}] {error}", int(Code.INTERNAL), -1, Long(NO_REPLICATION)])
        return Done([True, result.value, 0], result.cost, result.writes, result.scanned)

    def parts(self, parameters: Sequence[Parameter]) -> list[Parameter]:
        """Return the calls of a ``system.multicall``."""
        return Arguments(parameters).array(0)

    def part(self, call: Parameter) -> tuple[str, list[Parameter]]:
        """Return one call of a multicall.

        Raises:
            FaultError: The fault that takes the place of its answer.
        """
        if not isinstance(call, dict):
            raise FaultError(TYPE_ERROR, "system.multicall: each call must be a struct")
        name, parameters = call.get("methodName"), call.get("params")
        if not isinstance(name, str) or not isinstance(parameters, list):
            raise FaultError(TYPE_ERROR, "system.multicall: a call needs 'methodName' (string) and 'params' (array)")
        if name == "system.multicall":
            raise FaultError(REFUSED, "Recursive system.multicall forbidden")
        return name, parameters

    def _authenticate(self, session: str) -> User:
        name, separator, secret = session.partition(":")
        user = self._cloud.user(name) if separator else None
        if user is None or not user.authenticates(secret, self._cloud.now):
            raise RefusedError(Code.AUTHENTICATION, "User couldn't be authenticated, aborting call.")
        return user

    # System, users, groups

    def _config(self, user: User, _: Arguments) -> Result:
        if not user.is_admin:
            raise not_authorized(
                user.oid, "The oned configuration can only be retrieved by users in the oneadmin group"
            )
        settings = self._cloud.settings
        values = {"MAX_CONN": settings.max_connections, "MAX_CONN_BACKLOG": settings.backlog,
                  "TIMEOUT": int(settings.idle_seconds), "MESSAGE_SIZE": settings.max_request_bytes,
                  "API_LIST_ORDER": "DESC"}  # fmt: skip
        template = Template((name, str(value)) for name, value in values.items())
        return Result(template.to_xml("OPENNEBULA_CONFIGURATION"))

    def _user_info(self, user: User, given: Arguments) -> Result:
        oid = given.integer(1)
        other = user if oid == -1 else self._cloud.users.get(oid)
        if other is None:
            raise absent("user", oid)
        if other is not user and not user.is_admin:
            raise not_authorized(user.oid, f"Not authorized to perform USE USER [{oid}]")
        return Result(other.to_xml(self._cloud.groups[other.gid].name))

    def _login(self, user: User, given: Arguments) -> Result:
        name, token, seconds = given.string(1), given.string(2), given.integer(3)
        egid = given.integer(4) if len(given) > 4 else -1
        other = self._cloud.user(name)
        if other is None:
            raise RefusedError(Code.NO_EXISTS, "Error getting user Pool.")
        if other is not user and not user.is_admin:
            raise not_authorized(user.oid, f"Not authorized to perform MANAGE USER [{other.oid}]")
        return self._written(other.login(token, seconds, egid, self._cloud.now))

    def _user_quota(self, user: User, given: Arguments) -> Result:
        oid = given.integer(1)
        other = self._cloud.users.get(oid)
        if other is None:
            raise absent("user", oid)
        if not user.is_admin:
            raise not_authorized(user.oid, f"Not authorized to perform ADMIN USER [{oid}]")
        other.quota.limits.update(_limits(parse(given.string(2))))
        return self._written(oid)

    def _default_quota(self, user: User, given: Arguments) -> Result:
        if not user.is_admin:
            raise not_authorized(user.oid, "The default quotas can only be updated by users in the oneadmin group")
        self._cloud.default_user_quota.update(_limits(parse(given.string(1))))
        return self._written(_defaults("USER", self._cloud.default_user_quota))

    def _user_pool(self, user: User, _: Arguments) -> Result:
        groups = self._cloud.groups
        users = [other for other in self._cloud.users.values() if user.is_admin or other is user]
        inner = (other.to_xml(groups[other.gid].name, with_quota=False) for other in users)
        return Result(f"<USER_POOL>{''.join(inner)}</USER_POOL>")

    def _group_info(self, user: User, given: Arguments) -> Result:
        oid = given.integer(1)
        group = self._cloud.groups.get(user.gid if oid == -1 else oid)
        if group is None:
            raise absent("group", oid)
        if group.oid not in user.groups and not user.is_admin:
            raise not_authorized(user.oid, f"Not authorized to perform USE GROUP [{oid}]")
        return Result(group.to_xml())

    def _group_pool(self, user: User, _: Arguments) -> Result:
        groups = [group for group in self._cloud.groups.values() if user.is_admin or group.oid in user.groups]
        return Result(f"<GROUP_POOL>{''.join(group.to_xml(with_quota=False) for group in groups)}</GROUP_POOL>")

    # Templates, images, networks, hosts

    def _objects(self, kind: str) -> Mapping[int, Owned]:
        cloud = self._cloud
        pools: dict[str, Mapping[int, Owned]] = {
            "TEMPLATE": cloud.templates,
            "IMAGE": cloud.images,
            "NET": cloud.networks,
        }
        return pools[kind]

    def _info(self, user: User, given: Arguments, kind: str) -> Result:
        oid = given.integer(1)
        found = self._objects(kind).get(oid)
        if found is None:
            raise absent(_KINDS[kind], oid)
        found.authorize(user, "USE", kind)
        return Result(_xml(found))

    def _pool(self, user: User, given: Arguments, kind: str, tag: str) -> Result:
        chosen = select(self._objects(kind).values(), user, given.integer(1), given.integer(2), given.integer(3))
        return Result(f"<{tag}>{''.join(map(_xml, chosen))}</{tag}>")

    def _host_info(self, user: User, given: Arguments) -> Result:
        oid = given.integer(1)
        host = self._cloud.hosts.get(oid)
        if host is None:
            raise absent("host", oid)
        if not user.is_admin:
            raise not_authorized(user.oid, f"Not authorized to perform USE HOST [{oid}]")
        return Result(host.to_xml())

    def _host_pool(self, user: User, _: Arguments) -> Result:
        """Return the hosts; ordinary users have no rights on hosts and get an empty pool."""
        hosts = self._cloud.hosts.values() if user.is_admin else ()
        return Result(f"<HOST_POOL>{''.join(host.to_xml() for host in hosts)}</HOST_POOL>")

    def _cluster_pool(self, user: User, _: Arguments) -> Result:
        hosts = "".join(f"<ID>{oid}</ID>" for oid in self._cloud.hosts)
        networks = "".join(f"<ID>{oid}</ID>" for oid in self._cloud.networks)
        cluster = (
            f"<CLUSTER><ID>0</ID><NAME>default</NAME><HOSTS>{hosts}</HOSTS><DATASTORES><ID>0</ID><ID>1</ID>"
            f"</DATASTORES><VNETS>{networks}</VNETS><TEMPLATE/></CLUSTER>"
        )
        return Result(f"<CLUSTER_POOL>{cluster if user.is_admin else ''}</CLUSTER_POOL>")

    # VMs

    def _vm(self, user: User, oid: int, right: str) -> Vm:
        vm = self._cloud.vms.get(oid)
        if vm is None:
            raise absent(_KINDS["VM"], oid)
        vm.authorize(user, right, "VM")
        return vm

    def _instantiate(self, user: User, given: Arguments) -> Result:
        template, name = given.integer(1), given.string(2)
        hold, extra = (given.boolean(3), given.string(4)) if len(given) > 3 else (False, "")
        persistent = given.boolean(5) if len(given) > 5 else False
        return self._written(instantiate(self._cloud, self._life, user, template, name, hold, extra, persistent).oid)

    def _vm_info(self, user: User, given: Arguments) -> Result:
        vm = self._vm(user, given.integer(1), "USE")
        return Result(Escaped((vm.whole(2),)), self._cloud.settings.costs.extended_row)

    def _info_set(self, user: User, given: Arguments) -> Result:
        """Return VMs by their ids, including those that are done; unknown ids are missing in the answer.

        oned 7.4 refused the call if another user owned one of the VMs. oned 6.10 omits such a VM according to its
        source, and so does this method if ``Settings.foreign_vms_refused`` is False.

        Raises:
            RefusedError: 0x0200, if the caller may not USE one of them.
        """
        ids, extended = given.string(1), given.boolean(2)
        wanted = sorted({int(number) for number in ids.split(",") if number.strip().isdecimal()}, reverse=True)
        vms = [vm for oid in wanted if (vm := self._cloud.vms.get(oid))]
        if self._cloud.settings.foreign_vms_refused:
            for vm in vms:
                vm.authorize(user, "USE", "VM")
        vms = [vm for vm in vms if vm.allows(user, "USE")]
        return vm_pool(self._cloud.settings.costs, vms, extended, scanned=0)

    def _action(self, user: User, given: Arguments) -> Result:
        action, oid = given.string(1), given.integer(2)
        vm = self._vm(user, oid, "ADMIN" if action in ADMIN_OPERATIONS else "MANAGE")
        self._life.act(vm, action)
        return self._written(oid)

    def _recover(self, user: User, given: Arguments) -> Result:
        """Apply a recovery.

        With the default oned.conf, only administrators may do this, also for the recovery "delete".
        """
        oid, operation = given.integer(1), given.integer(2)
        if not 0 <= operation <= 5:
            raise RefusedError(Code.ACTION, "Wrong recovery operation code")
        self._life.recover(self._vm(user, oid, "ADMIN"), operation)
        return self._written(oid)

    def _update(self, user: User, given: Arguments) -> Result:
        oid, source, append = given.integer(1), given.string(2), given.integer(3)
        if append not in (0, 1):
            raise RefusedError(Code.XML_RPC_API, "Wrong update type")
        vm = self._vm(user, oid, "MANAGE")
        try:
            template = parse(source)
        except TemplateError as error:
            raise RefusedError(Code.INTERNAL, f"Cannot update template. {error}") from error
        if append:
            vm.user_template.merge(template)
        else:
            vm.user_template = template
        vm.rendered = None
        return self._written(oid)

    def _rename(self, user: User, given: Arguments) -> Result:
        oid, name = given.integer(1), given.string(2)
        vm = self._vm(user, oid, "MANAGE")
        reason = check_name(name)
        if reason:
            raise RefusedError(Code.ACTION, reason)
        vm.name, vm.rendered = name, None
        return self._written(oid)

    def _chmod(self, user: User, given: Arguments) -> Result:
        """Set nine permissions: 1 sets, 0 clears, -1 keeps."""
        oid, bits = given.integer(1), [given.integer(position) for position in range(2, 11)]
        vm = self._vm(user, oid, "MANAGE")
        if any(bits[column] == 1 for column in (2, 5, 8)) and not user.is_admin:
            raise not_authorized(user.oid, f"Not authorized to perform ADMIN VM [{oid}]")
        vm.permissions.bits = [
            before if bit == -1 else bit == 1 for before, bit in zip(vm.permissions.bits, bits, strict=True)
        ]
        return self._written(oid)

    def _chown(self, user: User, given: Arguments) -> Result:
        """Change the owner or group; -1 keeps it.

        Only administrators may change the user; the group must be the caller's.
        """
        oid, uid, gid = given.integer(1), given.integer(2), given.integer(3)
        vm = self._vm(user, oid, "MANAGE")
        used = {"VMS": 1, "MEMORY": vm.memory_mib, "CPU": vm.cores} | (running_request(vm) if vm.running_quota else {})
        before = self._cloud.quotas(vm.uid, vm.gid)
        owner, group = self._cloud.users.get(uid), self._cloud.groups.get(gid)
        if uid != -1:
            if owner is None:
                raise absent("user", uid)
            if not user.is_admin:
                raise not_authorized(user.oid, f"Not authorized to perform MANAGE USER [{uid}]")
            vm.uid, vm.uname = owner.oid, owner.name
        if gid != -1:
            if group is None:
                raise absent("group", gid)
            if gid not in user.groups and not user.is_admin:
                raise not_authorized(user.oid, f"Not authorized to perform USE GROUP [{gid}]")
            vm.gid, vm.gname = group.oid, group.name
        for _, quota, _ in before:
            quota.add(used, -1)
        for _, quota, _ in self._cloud.quotas(vm.uid, vm.gid):
            quota.add(used)
        vm.rendered = None
        return self._written(oid)

    def _written(self, value: Answer) -> Result:
        return Result(value, self._cloud.settings.costs.write, writes=True)


def _xml(one: Owned) -> str:
    assert isinstance(one, VmTemplate | Image | Network)
    return one.to_xml()


def _defaults(whose: str, limits: dict[str, float]) -> str:
    quota = Quota()
    quota.limits = {metric: limits.get(metric, -2.0) for metric in quota.METRICS} if limits else {}
    tag = f"DEFAULT_{whose}_QUOTAS"
    return f"<{tag}><DATASTORE_QUOTA/><NETWORK_QUOTA/>{quota.to_xml()}<IMAGE_QUOTA/></{tag}>"


def _limits(template: Template) -> dict[str, float]:
    """Return the limits in ``VM=[VMS="10",...]``."""
    limits: dict[str, float] = {}
    for vector in template.vectors("VM"):
        limits |= {name: float(value) for name, value in vector.items() if name in Quota.METRICS}
    return limits
