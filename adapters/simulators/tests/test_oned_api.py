# SPDX-License-Identifier: Apache-2.0
"""The API as the well-known client, pyone, sees it."""

from typing import Any

import pyone
import pytest

from simyard_simulators.oned import Failure, Oned, State, Step


async def refusal(blocking: Any, function: Any, *arguments: Any) -> pyone.OneException:
    with pytest.raises(pyone.OneException) as caught:
        await blocking(function, *arguments)
    return caught.value


async def running(oned: Oned, client: Any, blocking: Any, name: str = "vm", extra: Any = "") -> int:
    vm: int = await blocking(client.template.instantiate, 0, name, False, extra, False)
    await until(oned, client, blocking, vm, 3, 3)
    return vm


async def until(oned: Oned, client: Any, blocking: Any, vm: int, state: int, lcm: int = 0) -> Any:
    """Ask until the VM is in a state; pytest's timeout ends it otherwise."""
    while True:
        info = await blocking(client.vm.info, vm)
        if (state, lcm) == (info.STATE, info.LCM_STATE):
            return info


async def test_a_vm_lives_and_ends(oned: Oned, client: Any, blocking: Any) -> None:
    vm = await running(oned, client, blocking, "worker-1", {"LABELS": "simyard", "OWN_KEY": "value"})
    info = await blocking(client.vm.info, vm)
    assert (vm, info.ID, info.NAME, info.UNAME, info.GNAME) == (0, 0, "worker-1", "simyard", "simyard")
    assert info.USER_TEMPLATE["OWN_KEY"] == "value"
    assert info.TEMPLATE["CONTEXT"]["VMID"] == "0"
    assert info.TEMPLATE["NIC"]["IP"] == "10.0.0.1"
    assert info.HISTORY_RECORDS.HISTORY[0].HOSTNAME == "node0"
    assert await blocking(client.vm.action, "terminate-hard", vm) == vm
    await until(oned, client, blocking, vm, 6)
    assert (await blocking(client.vmpool.info, -2, -1, -1, -1)).VM == []


async def test_short_bodies_lack_what_only_the_extended_ones_have(oned: Oned, client: Any, blocking: Any) -> None:
    extra = 'LABELS="a,b"\nOWN_KEY="x"\nCONTEXT=[SECRET="hidden"]'
    vm = await running(oned, client, blocking, "vm", extra)
    while oned.cloud.vms[vm].user_template.get("READY") != "YES":
        await blocking(client.system.version)
    short = (await blocking(client.vmpool.infoset, str(vm), False)).VM[0]
    whole = (await blocking(client.vmpool.infoset, str(vm), True)).VM[0]
    assert dict(short.USER_TEMPLATE) == {"LABELS": "a,b"}
    assert "CONTEXT" not in short.TEMPLATE
    assert short.TEMPLATE["NIC"]["IP"] == "10.0.0.1"
    assert b"PERMISSIONS" not in oned.cloud.vms[vm].short()
    assert whole.USER_TEMPLATE["READY"] == "YES"
    assert whole.TEMPLATE["CONTEXT"]["SECRET"] == "hidden"
    assert (await blocking(client.vm.info, vm)).PERMISSIONS.OWNER_U == 1


async def test_version_is_for_all_and_the_configuration_for_administrators(
    client: Any, admin: Any, blocking: Any
) -> None:
    assert await blocking(client.system.version) == "7.0.0"
    error = await refusal(blocking, client.system.config)
    assert isinstance(error, pyone.OneAuthorizationException)
    assert (await blocking(admin.system.config)).MAX_CONN == 15


@pytest.mark.parametrize("session", ["simyard:wrong", "nobody:secret", "nonsense"])
async def test_wrong_credentials_are_refused(oned: Oned, blocking: Any, session: str) -> None:
    error = await refusal(blocking, pyone.OneServer(oned.url, session=session).system.version)
    assert isinstance(error, pyone.OneAuthenticationException)
    assert str(error) == "[one.system.version] User couldn't be authenticated, aborting call."


@pytest.mark.parametrize(
    ("method", "arguments", "kind", "message"),
    [
        ("vm.info", (99,), pyone.OneNoExistsException, "[one.vm.info] Error getting virtual machine [99]."),
        (
            "template.instantiate",
            (7, "x"),
            pyone.OneNoExistsException,
            "[one.template.instantiate] Error getting virtual machine template [7].",
        ),
        (
            "template.instantiate",
            (0, "x", False, "A=1 2"),
            pyone.OneInternalException,
            "[one.template.instantiate] Parse error: syntax error, unexpected",
        ),
        (
            "template.instantiate",
            (0, "x", False, 'DISK=[IMAGE="none"]'),
            pyone.OneException,
            "[one.template.instantiate] Error allocating a new virtual machine template. "
            "DISK 0: User 2 does not own an image with name: none . Set IMAGE_UNAME or IMAGE_UID of owner in DISK.",
        ),
        (
            "template.instantiate",
            (0, "x", False, 'NIC=[NETWORK="private"]'),
            pyone.OneException,
            "User 2 does not own a network with name: private . Set NETWORK_UNAME or NETWORK_UID of owner in NIC.",
        ),
        (
            "template.instantiate",
            (0, "x", False, 'DISK=[IMAGE_ID="9"]'),
            pyone.OneException,
            "[one.template.instantiate] Error allocating a new virtual machine template. "
            "DISK 0: Image with ID: 9 does not exist",
        ),
        (
            "template.instantiate",
            (0, "x", False, 'DISK=[IMAGE="debian",IMAGE_UNAME="oneadmin"]\nDISK=[IMAGE="x",IMAGE_UNAME="oneadmin"]'),
            pyone.OneException,
            "DISK 1: User 0 does not own an image with name: x . Set IMAGE_UNAME or IMAGE_UID of owner in DISK.",
        ),
        (
            "template.instantiate",
            (0, "x", False, 'NIC=[NETWORK="private",NETWORK_UNAME="nobody"]'),
            pyone.OneException,
            "User set in NETWORK_UNAME does not exist",
        ),
        (
            "template.instantiate",
            (0, "x", False, 'VCPU="none"'),
            pyone.OneException,
            "VCPU attribute must be a positive integer value.",
        ),
        (
            "template.instantiate",
            (0, "x", False, 'NIC=[NETWORK="private",MAC="02:00:00:00:00:01"]'),
            pyone.OneAuthorizationException,
            "[one.template.instantiate] User [2] : User Template includes a restricted attribute NIC.",
        ),
        (
            "template.instantiate",
            (0, "x", False, 'CPU="none"'),
            pyone.OneException,
            "CPU attribute must be a positive float or integer value.",
        ),
        ("template.instantiate", (0, "a/b"), pyone.OneException, "Invalid NAME, char '/' is not allowed"),
        ("template.instantiate", (0, "n" * 129), pyone.OneException, "Invalid NAME, max length is 128 chars"),
        (
            "template.instantiate",
            (0, "x", False, 'CONTEXT=[START_SCRIPT="echo $(hostname)"]'),
            pyone.OneException,
            "Error parsing: CONTEXT. syntax error, unexpected EOA",
        ),
        (
            "template.instantiate",
            (0, "x", False, 'CONTEXT=[FILES="/etc/passwd"]'),
            pyone.OneAuthorizationException,
            "[one.template.instantiate] User [2] : User Template includes a restricted attribute CONTEXT.",
        ),
        ("vmpool.info", (-5, -1, -1, -1), pyone.OneApiException, "[one.vmpool.info] Incorrect filter_flag"),
        ("vmpool.info", (-2, -1, -1, 12), pyone.OneApiException, "[one.vmpool.info] Incorrect filter_flag, state"),
        (
            "vmpool.info",
            (-2, -1, -1, -1, "NAME=x"),
            pyone.OneInternalException,
            "Full text search is not supported by the SQL backend",
        ),
    ],
)
async def test_refusals_have_the_code_and_the_text_of_oned(
    client: Any, blocking: Any, method: str, arguments: tuple[Any, ...], kind: type[Exception], message: str
) -> None:
    group, name = method.split(".")
    error = await refusal(blocking, getattr(getattr(client, group), name), *arguments)
    assert type(error) is kind
    assert message in str(error)


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("vm.info", ("0",), "Parameter that is supposed to be integer is not"),
        ("vm.action", (0, 0), "Parameter that is supposed to be string is not"),
        ("vmpool.infoset", ("0", 1), "Parameter that is supposed to be boolean is not"),
        ("vm.info", (), "Not enough parameters"),
        ("vm.nonsense", (0,), "Method 'one.vm.nonsense' not defined"),
    ],
)
async def test_wrong_types_are_faults(
    client: Any, blocking: Any, method: str, arguments: tuple[Any, ...], message: str
) -> None:
    group, name = method.split(".")
    error = await refusal(blocking, getattr(getattr(client, group), name), *arguments)
    assert type(error) is pyone.OneException
    assert "Fault -50" in str(error)
    assert message in str(error)


async def test_quota_has_the_code_of_a_permission_and_comes_back_with_the_vm(
    oned: Oned, client: Any, admin: Any, blocking: Any
) -> None:
    await blocking(admin.user.quota, 2, 'VM=[VMS="1"]')
    vm = await running(oned, client, blocking)
    error = await refusal(blocking, client.template.instantiate, 0, "second")
    assert isinstance(error, pyone.OneAuthorizationException)
    assert str(error) == ("[one.template.instantiate] User [2] : user [2] limit of 1 reached for VMS quota in VM.")
    quota = (await blocking(client.user.info, -1)).VM_QUOTA.VM[0]
    assert (quota.VMS, quota.VMS_USED) == ("1", "1")
    await blocking(client.vm.action, "terminate-hard", vm)
    await until(oned, client, blocking, vm, 6)
    assert await blocking(client.template.instantiate, 0, "second") == 1


async def test_group_and_default_quotas_count_too(oned: Oned, client: Any, admin: Any, blocking: Any) -> None:
    oned.cloud.groups[100].quota.limits["CPU"] = 1
    error = await refusal(blocking, client.template.instantiate, 0, "vm", False, {"CPU": "2"})
    assert "group [100] limit of 1 reached for CPU quota in VM" in str(error)
    oned.cloud.groups[100].quota.limits.clear()
    await blocking(admin.userquota.update, 'VM=[MEMORY="100"]')
    error = await refusal(blocking, client.template.instantiate, 0, "vm")
    assert "limit of 100 reached for MEMORY quota in VM" in str(error)


async def test_a_running_quota_is_free_again_when_the_vm_is_put_down(
    oned: Oned, client: Any, admin: Any, blocking: Any
) -> None:
    oned.cloud.users[2].quota.limits["RUNNING_VMS"] = 1
    first = await running(oned, client, blocking, "first")
    await blocking(client.vm.action, "poweroff-hard", first)
    await until(oned, client, blocking, first, 8)
    await running(oned, client, blocking, "second")
    error = await refusal(blocking, client.vm.action, "resume", first)
    assert isinstance(error, pyone.OneActionException)
    assert "limit of 1 reached for RUNNING_VMS quota in VM" in str(error)


async def test_others_may_not_touch_a_vm_unless_it_is_opened_to_them(oned: Oned, client: Any, blocking: Any) -> None:
    oned.cloud.add_user("other", "pass", "simyard")
    other = pyone.OneServer(oned.url, session="other:pass")
    vm = await running(oned, client, blocking)
    error = await refusal(blocking, other.vm.info, vm)
    assert str(error) == "[one.vm.info] User [3] : Not authorized to perform USE VM [0]."
    error = await refusal(blocking, other.vmpool.infoset, "0", False)
    assert isinstance(error, pyone.OneAuthorizationException)
    assert str(error) == "[one.vmpool.infoset] User [3] : Not authorized to perform USE VM [0]."
    await blocking(client.vm.chmod, vm, -1, -1, -1, 1, -1, -1, -1, -1, -1)
    assert (await blocking(other.vm.info, vm)).PERMISSIONS.GROUP_U == 1
    error = await refusal(blocking, other.vm.action, "terminate", vm)
    assert "Not authorized to perform MANAGE VM [0]" in str(error)


async def test_an_owner_may_terminate_a_failed_vm_but_not_recover_it(
    oned: Oned, client: Any, admin: Any, blocking: Any
) -> None:
    vm = await running(oned, client, blocking)
    error = await refusal(blocking, client.vm.recover, vm, 3)
    assert str(error) == "[one.vm.recover] User [2] : Not authorized to perform ADMIN VM [0]."
    assert await blocking(admin.vm.recover, vm, 3) == vm
    await until(oned, client, blocking, vm, 6)
    error = await refusal(blocking, admin.vm.recover, vm, 9)
    assert str(error) == "[one.vm.recover] Wrong recovery operation code"


async def test_an_extra_template_needs_the_right_to_create_one(oned: Oned, client: Any, blocking: Any) -> None:
    oned.cloud.users[2].create = frozenset({"VM"})
    assert await blocking(client.template.instantiate, 0, "plain") == 0
    error = await refusal(blocking, client.template.instantiate, 0, "merged", False, {"A": "1"})
    assert "Not authorized to perform CREATE TEMPLATE" in str(error)


@pytest.mark.parametrize(("kind", "what"), [("templates", "TEMPLATE"), ("images", "IMAGE"), ("networks", "NET")])
async def test_what_a_vm_is_made_of_must_be_usable(
    oned: Oned, client: Any, blocking: Any, kind: str, what: str
) -> None:
    getattr(oned.cloud, kind)[0].permissions.bits[6] = False
    error = await refusal(blocking, client.template.instantiate, 0, "vm")
    assert f"Not authorized to perform USE {what} [0]" in str(error)


async def test_tokens_open_the_door_until_they_expire(oned: Oned, client: Any, blocking: Any) -> None:
    token = await blocking(client.user.login, "simyard", "", 3600, -1)
    session = pyone.OneServer(oned.url, session=f"simyard:{token}")
    assert await blocking(session.system.version) == "7.0.0"
    oned.cloud.expire_tokens("simyard")
    assert isinstance(await refusal(blocking, session.system.version), pyone.OneAuthenticationException)


async def test_a_user_has_ten_tokens_at_most_and_expired_ones_do_not_count(
    oned: Oned, client: Any, blocking: Any
) -> None:
    for _ in range(10):
        await blocking(client.user.login, "simyard", "", 3600, -1)
    error = await refusal(blocking, client.user.login, "simyard", "", 3600, -1)
    assert str(error) == "[one.user.login] Max number of tokens limit reached."
    oned.cloud.expire_tokens("simyard")
    assert await blocking(client.user.login, "simyard", "mine", -1, -1) == "mine"
    assert await blocking(client.user.login, "simyard", "mine", 0, -1) == "mine"
    assert oned.cloud.users[2].tokens == []
    error = await refusal(blocking, client.user.login, "simyard", "mine", 0, -1)
    assert "Could not find token: mine" in str(error)


async def test_update_replaces_or_appends_and_rename_renames(oned: Oned, client: Any, blocking: Any) -> None:
    vm = await blocking(client.template.instantiate, 0, "vm", True, "")
    await blocking(client.vm.update, vm, 'A="1"\nB="2"', 0)
    await blocking(client.vm.update, vm, {"B": "3"}, 1)
    await blocking(client.vm.rename, vm, "new-name")
    info = await blocking(client.vm.info, vm)
    assert (info.NAME, dict(info.USER_TEMPLATE)) == ("new-name", {"A": "1", "B": "3"})
    error = await refusal(blocking, client.vm.update, vm, "broken", 1)
    assert str(error).startswith("[one.vm.update] Cannot update template. Parse error: syntax error")


async def test_a_vm_can_be_given_to_a_group_of_the_callers(oned: Oned, client: Any, blocking: Any) -> None:
    oned.cloud.users[2].groups.append(oned.cloud.add_group("lab").oid)
    oned.cloud.add_group("foreign")
    vm = await blocking(client.template.instantiate, 0, "vm")
    assert await blocking(client.vm.chown, vm, -1, 101) == vm
    assert (await blocking(client.vm.info, vm)).GNAME == "lab"
    assert oned.cloud.groups[101].quota.used["VMS"] == 1
    assert oned.cloud.groups[100].quota.used["VMS"] == 0
    error = await refusal(blocking, client.vm.chown, vm, -1, 102)
    assert "Not authorized to perform USE GROUP [102]" in str(error)


async def test_names_are_not_unique_and_a_vm_without_one_is_named_after_its_template(
    oned: Oned, client: Any, blocking: Any
) -> None:
    for _ in range(2):
        await blocking(client.template.instantiate, 0, "same")
    third = await blocking(client.template.instantiate, 0, "")
    assert [vm.oid for vm in oned.cloud.named("same")] == [0, 1]
    assert (await blocking(client.vm.info, third)).NAME == "worker-2"


async def test_pools_of_what_vms_are_made_of(oned: Oned, client: Any, admin: Any, blocking: Any) -> None:
    oned.cloud.add_template("private-one", 'CPU="1"\nMEMORY="64"', permissions="600")
    assert [each.NAME for each in (await blocking(client.templatepool.info, -2, -1, -1)).VMTEMPLATE] == ["worker"]
    assert len((await blocking(admin.templatepool.info, -2, -1, -1)).VMTEMPLATE) == 2
    assert (await blocking(client.templatepool.info, -3, -1, -1)).VMTEMPLATE == []
    assert (await blocking(client.template.info, 0)).TEMPLATE["MEMORY"] == "512"
    image = (await blocking(client.imagepool.info, -2, -1, -1)).IMAGE[0]
    assert (image.NAME, image.UNAME, image.STATE) == ("debian", "oneadmin", 1)
    assert (await blocking(client.vnpool.info, -2, -1, -1)).VNET[0].NAME == "private"
    assert (await blocking(client.hostpool.info)).HOST == []
    assert len((await blocking(admin.hostpool.info)).HOST) == 10
    assert (await blocking(admin.host.info, 3)).NAME == "node3"
    assert (await blocking(admin.clusterpool.info)).CLUSTER[0].NAME == "default"
    assert (await blocking(client.group.info, -1)).NAME == "simyard"
    assert len((await blocking(admin.userpool.info)).USER) == 3


async def test_failed_drivers_leave_an_error_in_the_short_body(oned: Oned, client: Any, blocking: Any) -> None:
    oned.cloud.failures.append(Failure(Step.PROLOG, error="no space left"))
    vm = await blocking(client.template.instantiate, 0, "vm")
    await until(oned, client, blocking, vm, int(State.ACTIVE), 39)
    short = (await blocking(client.vmpool.infoset, str(vm), False)).VM[0]
    assert short.USER_TEMPLATE["ERROR"].endswith(": no space left")
