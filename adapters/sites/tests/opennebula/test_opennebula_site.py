# SPDX-License-Identifier: Apache-2.0
"""Machines on a simulated oned: how they live, fail and end, and what is sent for them."""

import asyncio
from typing import Any

import pytest

from simyard_simulators.oned import Failure, Lcm, State, Step, Vm
from simyard_sites.base import (
    Address,
    ConflictError,
    InvalidSpecError,
    MachineState,
    PermissionDeniedError,
    PowerAction,
    Stage,
    UnavailableError,
    UnknownOutcomeError,
)


async def test_a_machine_goes_through_its_stages_and_has_an_address(yard: Any) -> None:
    site = yard.site()
    seen = yard.watch(site)
    await yard.create(site, "a")
    machine = (await seen.until_all("Running", "a"))["a"]
    assert seen.states["a"][-1] == "Running"
    assert machine.entered.keys() >= {Stage.PENDING, Stage.RUNNING}
    [card] = yard.vm(machine).template.vectors("NIC")
    assert machine.addresses == (Address(card["IP"], f"eth{card['NIC_ID']}", card["MAC"]),)


async def test_the_template_keeps_what_the_request_does_not_replace(yard: Any, outcomes: Any) -> None:
    site = yard.site(hostRequirements='NAME = "node1"', networks=[{"name": "private", "owner": "oneadmin"}])
    keys = ("ssh-ed25519 AAAA x@y", "ssh-rsa BBBB")
    request = yard.request("a", cores=2, cpu_millis=1500, memory_mib=768, image="debian", ssh_public_keys=keys)
    [outcome] = await outcomes(site.create([request]))
    assert outcome.error is None
    template = yard.vm(outcome.machine).template
    assert (template.get("CPU"), template.get("VCPU"), template.get("MEMORY")) == ("1.5", "2", "768")
    assert template.get("HYPERVISOR") == "kvm" or yard.vm(outcome.machine).user_template.get("HYPERVISOR") == "kvm"
    [context] = template.vectors("CONTEXT")
    assert context["NETWORK"] == "YES"
    assert context["SSH_PUBLIC_KEY"] == "\n".join(keys)
    assert context["SET_HOSTNAME"] == "a"
    assert {"SIMYARD_BOOTSTRAP", "START_SCRIPT_BASE64", "USER_DATA"} <= context.keys()
    assert [disk["IMAGE"] for disk in template.vectors("DISK")] == ["debian"]
    assert [nic["NETWORK"] for nic in template.vectors("NIC")] == ["private"]


async def test_without_keys_of_its_own_a_machine_has_those_of_the_template(yard: Any) -> None:
    yard.oned.cloud.add_template(
        "keyed", 'CPU=1\nMEMORY=64\nDISK=[IMAGE="debian",IMAGE_UNAME="oneadmin"]\nCONTEXT=[SSH_PUBLIC_KEY="k v"]'
    )
    [machine] = await yard.create(yard.site(template="keyed"), "a")
    [context] = yard.vm(machine).template.vectors("CONTEXT")
    assert (context["SSH_PUBLIC_KEY"], context["NETWORK"]) == ("k v", "YES")


@pytest.mark.parametrize(
    ("failure", "reason"), [(Step.PROLOG, "PrologFailure"), (Step.BOOT, "BootFailure")], ids=["prolog", "boot"]
)
async def test_a_machine_that_fails_says_why_and_can_be_deleted(
    yard: Any, outcomes: Any, failure: Step, reason: str
) -> None:
    yard.oned.cloud.failures.append(Failure(failure))
    site = yard.site()
    seen = yard.watch(site)
    await yard.create(site, "a")
    machine = (await seen.until_all("Failed", "a"))["a"]
    assert machine.reason == reason
    assert "Error" in machine.message
    [outcome] = await outcomes(site.delete([machine.id]))
    assert outcome.error is None
    await seen.until(lambda machines: not machines)


@pytest.mark.parametrize("lcm", [lcm for lcm in Lcm if lcm.name.endswith("FAILURE")], ids=lambda lcm: lcm.name)
async def test_in_every_state_of_failure_a_machine_is_failed_and_can_be_deleted(
    yard: Any, outcomes: Any, lcm: Lcm
) -> None:
    site = yard.site()
    [machine] = await yard.create(site, "a")
    yard.oned.cloud.index(yard.vm(machine), State.ACTIVE, lcm)
    [found] = await outcomes(site.get([machine.id]))
    assert found.machine.state is MachineState.FAILED
    seen = yard.watch(site)
    [outcome] = await outcomes(site.delete([machine.id]))
    assert outcome.error is None
    await seen.until(lambda machines: not machines)


async def test_where_a_failed_machine_cannot_be_terminated_it_is_recovered_by_deletion(
    yard: Any, outcomes: Any
) -> None:
    site = yard.site()
    [machine] = await yard.create(site, "a")
    yard.oned.cloud.index(yard.vm(machine), State.ACTIVE, Lcm.BOOT_FAILURE)
    yard.oned.faults.deny("one.vm.action", "Could not terminate VM, wrong state BOOT_FAILURE.", code=0x0800)
    [outcome] = await outcomes(site.delete([machine.id]))
    assert isinstance(outcome.error, PermissionDeniedError)
    assert "umask 077" in str(outcome.error)
    yard.vm(machine).permissions.bits[2] = True  # ADMIN of the owner
    [outcome] = await outcomes(site.delete([machine.id]))
    assert outcome.error is None
    assert yard.vm(machine).lcm is Lcm.CLEANUP_DELETE or yard.vm(machine).state is State.DONE


async def test_a_machine_that_fits_nowhere_waits_and_says_so(yard: Any) -> None:
    site = yard.site(hostRequirements='NAME = "no-such-host"')
    seen = yard.watch(site)
    await yard.create(site, "a")
    machine = (await seen.until(lambda machines: "a" in machines and machines["a"].message != ""))["a"]
    assert (machine.state, machine.reason) == (MachineState.PENDING, "Unschedulable")


async def test_a_machine_that_boots_is_ended_as_soon_as_it_can_be(make_yard: Any, outcomes: Any) -> None:
    yard = await make_yard(time_scale=0.05)
    site = yard.site()
    seen = yard.watch(site)
    [machine] = await yard.create(site, "a")
    await seen.until(
        lambda machines: "a" in machines and machines["a"].state in (MachineState.PROLOG, MachineState.BOOT)
    )
    [outcome] = await outcomes(site.delete([machine.id]))
    assert outcome.error is None
    await seen.until(lambda machines: not machines)
    assert yard.vm(machine).state is State.DONE


async def test_what_a_state_forbids_is_a_conflict_and_what_is_done_already_is_not(yard: Any, outcomes: Any) -> None:
    site = yard.site()
    seen = yard.watch(site)
    [machine] = await yard.create(site, "a")
    await seen.until_all("Running", "a")
    for action, state in (
        (PowerAction.SUSPEND, "Suspended"),
        (PowerAction.START, "Running"),
        (PowerAction.STOP, "Stopped"),
    ):
        assert (await outcomes(site.act([machine.id], action)))[0].error is None
        await seen.until_all(state, "a")
        while yard.vm(machine).lcm not in (Lcm.LCM_INIT, Lcm.RUNNING):
            await outcomes(site.get([machine.id]))
        assert (await outcomes(site.act([machine.id], action)))[0].error is None
    [outcome] = await outcomes(site.act([machine.id], PowerAction.SUSPEND))
    assert isinstance(outcome.error, ConflictError)
    [outcome] = await outcomes(site.act([machine.id], PowerAction.RESTART))
    assert isinstance(outcome.error, ConflictError)


async def test_a_suspended_machine_cannot_be_stopped_and_says_what_to_do(yard: Any, outcomes: Any) -> None:
    site = yard.site()
    [machine] = await yard.create(site, "a")
    yard.oned.cloud.index(yard.vm(machine), State.SUSPENDED, Lcm.LCM_INIT)
    [outcome] = await outcomes(site.act([machine.id], PowerAction.STOP))
    assert isinstance(outcome.error, InvalidSpecError)
    assert "start it first" in str(outcome.error)


async def test_a_host_that_is_lost_is_not_a_failure(yard: Any) -> None:
    site = yard.site()
    seen = yard.watch(site)
    [machine] = await yard.create(site, "a")
    await seen.until_all("Running", "a")
    yard.oned.cloud.index(yard.vm(machine), State.ACTIVE, Lcm.UNKNOWN)
    machine = (await seen.until(lambda machines: machines["a"].reason == "Unknown"))["a"]
    assert machine.state is MachineState.RUNNING


async def test_what_a_cut_multicall_did_is_adopted_and_the_rest_is_made(yard: Any, outcomes: Any) -> None:
    site = yard.site()
    requests = [yard.request(name) for name in "abcdef"]
    await site.list_owned()
    yard.oned.faults.crash_in_multicall(3)
    with pytest.raises(UnknownOutcomeError):
        await outcomes(site.create(requests))
    found = await outcomes(site.create(requests))
    assert [outcome.error for outcome in found] == [None] * 6
    assert len(yard.oned.cloud.vms) == 6


async def test_until_a_look_has_succeeded_nothing_is_made_after_a_lost_answer(yard: Any, outcomes: Any) -> None:
    site = yard.site()
    await site.list_owned()
    yard.oned.faults.lose_answers(1, "one.template.instantiate")
    with pytest.raises(UnknownOutcomeError):
        await outcomes(site.create([yard.request("a")]))
    yard.oned.faults.close(2, "one.vmpool.info")
    with pytest.raises(UnavailableError):
        await outcomes(site.create([yard.request("a")]))
    await yard.create(site, "a")
    assert len(yard.oned.cloud.vms) == 1


async def test_calls_beside_each_other_ask_for_a_name_once(yard: Any) -> None:
    site = yard.site()
    found = await asyncio.gather(*(yard.create(site, "a", f"b{number}") for number in range(5)))
    assert {machine.id for [machine, _] in found} == {found[0][0].id}
    assert len(yard.oned.cloud.vms) == 6


async def test_one_request_at_a_time_makes_machines(make_yard: Any) -> None:
    yard = await make_yard(cost_scale=0.2)
    site = yard.site()
    await site.list_owned()
    names = [f"a{number}" for number in range(16)]
    made = await asyncio.gather(*(yard.create(site, *names[first : first + 4]) for first in range(0, 16, 4)))
    assert [machine.name for part in made for machine in part] == names
    assert yard.oned.counters.most_writers == 1


async def test_a_create_that_is_carried_out_late_leaves_one_machine(yard: Any) -> None:
    """One control plane has looked for the name before another one made it: the machine of the lower id stays."""
    site, late = yard.site(), yard.site()
    await late.list_owned()
    [machine] = await yard.create(site, "a")
    [adopted] = await yard.create(late, "a")
    assert (machine.id, adopted.id) == ("0", "0")
    assert len(yard.oned.cloud.vms) == 2
    for each in (site, late):
        assert [found.id for found in await each.list_owned()] == ["0"]
    async with asyncio.timeout(240):
        while yard.oned.cloud.vms[1].state is not State.DONE:
            await late.list_owned()
    assert [found.id for found in await late.list_owned()] == ["0"]


async def test_a_bad_image_is_the_pools_affair_and_a_bad_network_the_sites(yard: Any, outcomes: Any) -> None:
    [outcome] = await outcomes(yard.site().create([yard.request("a", image="debain")]))
    assert isinstance(outcome.error, InvalidSpecError)
    assert (outcome.error.scope.value, "spec.images.openNebula" in str(outcome.error)) == ("Pool", True)
    site = yard.site(networks=[{"name": "privat", "owner": "oneadmin"}])
    [outcome] = await outcomes(site.create([yard.request("b")]))
    assert (outcome.error.scope.value, "spec.provider.openNebula.networks" in str(outcome.error)) == ("Site", True)


async def test_the_quota_is_the_capacity(yard: Any) -> None:
    assert (await yard.site().probe()).capacity is None
    yard.oned.cloud.user("simyard").quota.limits["VMS"] = 7
    info = await yard.site().probe()
    assert (info.version, info.capacity) == ("OpenNebula 7.0.0", 7)


async def test_a_group_is_given_the_machines_only_where_their_secrets_are_encrypted(
    yard: Any, outcomes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = yard.oned.cloud.add_group("engineers")
    yard.oned.cloud.user("simyard").groups.append(group.oid)
    site = yard.site(userGroup="engineers")
    [machine] = await yard.create(site, "a")
    assert yard.vm(machine).gname == "simyard"
    with pytest.raises(InvalidSpecError, match="VM_ENCRYPTED_ATTR"):
        await site.probe()
    outsider = yard.site(userGroup="engineers")
    original = Vm.whole
    monkeypatch.setattr(Vm, "whole", lambda *_: b"&lt;VM&gt;all of its context is encrypted&lt;/VM&gt;")
    site = yard.site(userGroup="engineers")
    [machine] = await yard.create(site, "b")
    assert yard.vm(machine).gname == "engineers"
    assert yard.vm(machine).permissions.bits == [True, True, False, True, False, False, False, False, False]
    await site.probe()
    whole = Vm.whole
    monkeypatch.setattr(Vm, "whole", original)
    [outcome] = await outcomes(site.create([yard.request("scripted", user_data="#!/bin/sh\necho secret\n")]))
    assert yard.vm(outcome.machine).gname == "simyard", "a secret that no machine had before is looked at"
    monkeypatch.setattr(Vm, "whole", whole)
    yard.oned.cloud.user("simyard").groups.remove(group.oid)
    outsider._catalog._group = group.oid  # the group was left after it had been looked up
    await yard.create(outsider, "c")
    with pytest.raises(InvalidSpecError, match="Make the account a member"):
        outsider._sharing.check()
    assert not yard.oned.cloud.named("c")[0].permissions.bits[3], "our own group is given nothing"
