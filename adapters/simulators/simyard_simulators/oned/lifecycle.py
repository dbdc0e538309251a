# SPDX-License-Identifier: Apache-2.0
"""Simulates the life cycle of VMs: the steps of the drivers, and the effects of actions and recoveries in each state.

Sources: "Virtual Machines States Reference" of the documentation, and oned 6.10 (``DispatchManagerActions.cc``,
``LifeCycleActions.cc``) for the allowed states and the texts of refusals.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from simyard_simulators.oned.cloud import Cloud
from simyard_simulators.oned.machine import Act, Vm
from simyard_simulators.oned.placement import Placement
from simyard_simulators.oned.settings import Step
from simyard_simulators.oned.states import FAILURES, Code, Lcm, RefusedError, State

Target = State | Lcm


@dataclass(frozen=True, slots=True)
class _Phase:
    """A state that ends after a latency: the latency, the next state, and the state after a failure of the step."""

    latency: str
    then: Target
    fails: Target | None = None
    step: Step | None = None


_PHASES = {
    Lcm.PROLOG: _Phase("prolog", Lcm.BOOT, Lcm.PROLOG_FAILURE, Step.PROLOG),
    Lcm.PROLOG_RESUME: _Phase("prolog", Lcm.BOOT_STOPPED, Lcm.PROLOG_RESUME_FAILURE, Step.PROLOG),
    Lcm.PROLOG_UNDEPLOY: _Phase("prolog", Lcm.BOOT_UNDEPLOY, Lcm.PROLOG_UNDEPLOY_FAILURE, Step.PROLOG),
    Lcm.BOOT: _Phase("boot", Lcm.RUNNING, Lcm.BOOT_FAILURE, Step.BOOT),
    Lcm.BOOT_STOPPED: _Phase("restore", Lcm.RUNNING, Lcm.BOOT_STOPPED_FAILURE, Step.BOOT),
    Lcm.BOOT_UNDEPLOY: _Phase("boot", Lcm.RUNNING, Lcm.BOOT_UNDEPLOY_FAILURE, Step.BOOT),
    Lcm.BOOT_POWEROFF: _Phase("boot", Lcm.RUNNING, State.POWEROFF, Step.BOOT),
    Lcm.BOOT_UNKNOWN: _Phase("boot", Lcm.RUNNING, Lcm.UNKNOWN, Step.BOOT),
    Lcm.BOOT_SUSPENDED: _Phase("restore", Lcm.RUNNING, State.SUSPENDED, Step.BOOT),
    Lcm.SHUTDOWN: _Phase("shutdown", Lcm.EPILOG, Lcm.RUNNING, Step.SHUTDOWN),
    Lcm.SHUTDOWN_POWEROFF: _Phase("shutdown", State.POWEROFF, Lcm.RUNNING, Step.SHUTDOWN),
    Lcm.SHUTDOWN_UNDEPLOY: _Phase("shutdown", Lcm.EPILOG_UNDEPLOY, Lcm.RUNNING, Step.SHUTDOWN),
    Lcm.EPILOG: _Phase("epilog", State.DONE, Lcm.EPILOG_FAILURE, Step.EPILOG),
    Lcm.EPILOG_STOP: _Phase("epilog", State.STOPPED, Lcm.EPILOG_STOP_FAILURE, Step.EPILOG),
    Lcm.EPILOG_UNDEPLOY: _Phase("epilog", State.UNDEPLOYED, Lcm.EPILOG_UNDEPLOY_FAILURE, Step.EPILOG),
    Lcm.SAVE_SUSPEND: _Phase("save", State.SUSPENDED, Lcm.RUNNING),
    Lcm.SAVE_STOP: _Phase("save", Lcm.EPILOG_STOP, Lcm.RUNNING),
    Lcm.CLEANUP_DELETE: _Phase("cleanup", State.DONE),
    Lcm.CLEANUP_RESUBMIT: _Phase("cleanup", State.PENDING),
}
_FAILED_PHASE = {phase.fails: lcm for lcm, phase in _PHASES.items() if phase.fails in FAILURES}
_ERRORS = {
    Step.PROLOG: "Error executing image transfer script: Error copying image in the datastore",
    Step.BOOT: "Error deploying virtual machine: Could not create domain",
    Step.SHUTDOWN: "Error shutting down VM",
    Step.EPILOG: "Error executing image transfer script: Error deleting image from the datastore",
    Step.CLONE: "Error cloning an image of a persistent template",
}
_NOT_HELD = frozenset({State.DONE, State.STOPPED, State.UNDEPLOYED, State.PENDING, State.HOLD})
_NOT_RUNNING = frozenset({State.DONE, State.STOPPED, State.UNDEPLOYED, State.POWEROFF, State.SUSPENDED})
_UNPLACED = frozenset({State.INIT, State.PENDING, State.HOLD, State.CLONING, State.CLONING_FAILURE})
_RESTING = frozenset({State.SUSPENDED, State.POWEROFF, State.STOPPED, State.UNDEPLOYED})
_UP = frozenset({Lcm.RUNNING, Lcm.UNKNOWN})

ADMIN_OPERATIONS = frozenset({"resched", "unresched", "recover"})
"""The simulated part of VM_ADMIN_OPERATIONS of the default oned.conf: these need ADMIN, all others MANAGE."""


class LifeCycle:
    """The object that moves the VMs of a cloud between states."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self.placement = Placement(cloud, self._placed)
        self._actions: dict[str, Callable[[Vm], None]] = {
            "terminate": lambda vm: self._terminate(vm, hard=False),
            "terminate-hard": lambda vm: self._terminate(vm, hard=True),
            "poweroff": lambda vm: self._down(vm, Lcm.SHUTDOWN_POWEROFF, Act.POWEROFF, hard=False),
            "poweroff-hard": lambda vm: self._down(vm, Lcm.SHUTDOWN_POWEROFF, Act.POWEROFF_HARD, hard=True),
            "undeploy": lambda vm: self._undeploy(vm, hard=False),
            "undeploy-hard": lambda vm: self._undeploy(vm, hard=True),
            "hold": self._hold,
            "release": self._release,
            "stop": self._stop,
            "suspend": self._suspend,
            "resume": self._resume,
            "reboot": self._reboot,
            "reboot-hard": self._reboot,
            "resched": lambda vm: self._resched(vm, True),
            "unresched": lambda vm: self._resched(vm, False),
        }

    def act(self, vm: Vm, action: str) -> None:
        """Apply ``one.vm.action``.

        Raises:
            RefusedError: 0x0800, if the action is unknown or the state does not allow it.
        """
        perform = self._actions.get(action)
        if perform is None:
            raise RefusedError(Code.ACTION, f'Action "{action}" is not supported')
        try:
            perform(vm)
        except _WrongStateError as error:
            raise RefusedError(Code.ACTION, f'Error performing action "{action}": {error}') from error

    def begin(self, vm: Vm, hold: bool, cloning: bool) -> None:
        """Start a new VM: let it wait for a host, hold it, or clone its image first."""
        vm.running_quota = True
        self._cloud.insert(vm)
        waits = State.HOLD if hold else State.PENDING
        if cloning:
            self._cloud.index(vm, State.CLONING, Lcm.LCM_INIT)
            failed = self._cloud.fails(vm, Step.CLONE)
            self._then(vm, self._cloud.latency("clone"), State.CLONING_FAILURE if failed else waits)
        else:
            self.enter(vm, waits)

    def recover(self, vm: Vm, operation: int) -> None:
        """Apply ``one.vm.recover``: 0 failure, 1 success, 2 retry, 3 delete, 4 delete-recreate, 5 delete-db.

        Raises:
            RefusedError: 0x0800, if the state does not allow it.
        """
        if operation in (0, 1, 2):
            self._repair(vm, operation)
        elif operation == 4:
            self._recreate(vm)
        elif vm.state is State.DONE:
            return
        elif vm.state is State.ACTIVE and operation == 3:
            self._end_history(vm, Act.DELETE)
            self.enter(vm, Lcm.CLEANUP_DELETE)
        else:
            self.enter(vm, State.DONE)

    def lose_contact(self, vm: Vm) -> None:
        """Simulate that the monitor gets no answer about a running VM."""
        if vm.lcm is Lcm.RUNNING:
            self.enter(vm, Lcm.UNKNOWN)

    def power_down(self, vm: Vm) -> None:
        """Simulate that the guest shuts down by itself, which the monitor then sees."""
        if vm.lcm in _UP:
            self.enter(vm, State.POWEROFF)

    def ready(self, vm: Vm) -> None:
        """Report the guest through OneGate: READY=YES in the user template."""
        vm.user_template.set("READY", "YES")
        vm.rendered = None

    # State changes

    def enter(self, vm: Vm, target: Target, *, hard: bool = False, error: str = "") -> None:
        """Set the state of a VM with all effects of this change, and plan the next step."""
        cloud, now = self._cloud, int(self._cloud.now)
        lcm = target if isinstance(target, Lcm) else Lcm.LCM_INIT
        state = State.ACTIVE if isinstance(target, Lcm) else target
        cloud.index(vm, state, lcm)
        vm.last_poll = now
        self._stamp(vm, now)
        if state in _NOT_HELD and vm.host is not None:
            self.placement.leave(vm)
        if state in _NOT_RUNNING:
            self._release_running(vm)
        if error:
            vm.user_template.set("ERROR", f"{time.ctime(cloud.now)}: {error}")
        if state is State.DONE:
            vm.ended = now
            for _, quota, _ in cloud.quotas(vm.uid, vm.gid):
                quota.add({"VMS": 1, "MEMORY": vm.memory_mib, "CPU": vm.cores}, -1)
            self.placement.forget(vm)
        elif state is State.PENDING:
            self.placement.wait(vm)
        elif lcm is Lcm.RUNNING:
            self._run(vm)
        if lcm is Lcm.RUNNING or lcm in FAILURES or state is not State.ACTIVE:
            self.placement.end_deployment(vm)
        if lcm in _PHASES:
            self._plan(vm, _PHASES[lcm], hard)

    def _plan(self, vm: Vm, phase: _Phase, hard: bool) -> None:
        failure = (
            self._cloud.fails(vm, phase.step) if phase.step and not (hard and phase.step is Step.SHUTDOWN) else None
        )
        latency = "cancel" if hard and phase.latency == "shutdown" else phase.latency
        if failure and phase.fails is not None and phase.step:
            self._then(vm, self._cloud.latency(latency), phase.fails, failure.error or _ERRORS[phase.step])
        else:
            self._then(vm, self._cloud.latency(latency), phase.then)

    def _then(self, vm: Vm, seconds: float, target: Target, error: str = "") -> None:
        generation = vm.generation

        def follow() -> None:
            if vm.generation == generation:
                self.enter(vm, target, error=error)

        self._cloud.later(seconds, follow)

    def _placed(self, vm: Vm) -> None:
        """Continue a VM whose host is chosen: deploy it, or restore a stopped or undeployed one."""
        vm.user_template.remove("SCHED_MESSAGE")
        vm.user_template.remove("ERROR")
        last = vm.histories[-2].action if len(vm.histories) > 1 else Act.NONE
        if last is Act.STOP:
            self.enter(vm, Lcm.PROLOG_RESUME)
        elif last in (Act.UNDEPLOY, Act.UNDEPLOY_HARD):
            self.enter(vm, Lcm.PROLOG_UNDEPLOY)
        else:
            self.enter(vm, Lcm.PROLOG)

    def _run(self, vm: Vm) -> None:
        vm.deploy_id = vm.deploy_id or f"one-{vm.oid}"
        vm.user_template.remove("ERROR")
        if self._cloud.settings.guests_report and not vm.user_template.get("READY"):
            generation = vm.generation

            def report() -> None:
                if vm.generation == generation:
                    self.ready(vm)

            self._cloud.later(self._cloud.latency("ready"), report)

    def _stamp(self, vm: Vm, now: int) -> None:
        history = vm.history
        if history is None:
            return
        if vm.lcm in (Lcm.PROLOG, Lcm.PROLOG_RESUME, Lcm.PROLOG_UNDEPLOY):
            history.prolog_started = now
        elif vm.lcm in (Lcm.BOOT, Lcm.BOOT_STOPPED, Lcm.BOOT_UNDEPLOY):
            history.prolog_ended = history.running_started = now
        elif vm.lcm in (Lcm.EPILOG, Lcm.EPILOG_STOP, Lcm.EPILOG_UNDEPLOY):
            history.running_ended = history.epilog_started = now
        elif vm.state in _NOT_HELD and not history.ended:
            history.ended = now
            if history.running_started and not history.running_ended:
                history.running_ended = now
            if history.epilog_started:
                history.epilog_ended = now

    def _release_running(self, vm: Vm) -> None:
        if vm.running_quota:
            vm.running_quota = False
            for _, quota, _ in self._cloud.quotas(vm.uid, vm.gid):
                quota.add(running_request(vm), -1)

    # Actions

    def _end_history(self, vm: Vm, action: Act) -> None:
        if vm.history is not None:
            vm.history.action = action
            vm.rendered = None

    def _terminate(self, vm: Vm, hard: bool) -> None:
        action = Act.TERMINATE_HARD if hard else Act.TERMINATE
        if vm.state is State.DONE:
            return
        if vm.state in _UNPLACED:
            self.enter(vm, State.DONE)
        elif vm.state in _RESTING:
            self._end_history(vm, action)
            self.enter(vm, Lcm.EPILOG)
        elif vm.lcm in _UP or (vm.lcm is Lcm.SHUTDOWN and hard):
            self._end_history(vm, action)
            self.enter(vm, Lcm.SHUTDOWN, hard=hard)
        elif vm.lcm in FAILURES:
            self._end_history(vm, Act.DELETE)
            self.enter(vm, Lcm.CLEANUP_DELETE)
        else:
            raise _WrongStateError(f"Could not terminate VM {vm.oid}, wrong state {vm.state_name}.")

    def _down(self, vm: Vm, target: Lcm, action: Act, hard: bool) -> None:
        if vm.lcm in _UP or (vm.lcm is target and hard):
            self._end_history(vm, action)
            self.enter(vm, target, hard=hard)
        else:
            raise _unavailable(vm)

    def _undeploy(self, vm: Vm, hard: bool) -> None:
        action = Act.UNDEPLOY_HARD if hard else Act.UNDEPLOY
        if vm.state is State.POWEROFF:
            self._end_history(vm, action)
            self.enter(vm, Lcm.EPILOG_UNDEPLOY)
        else:
            self._down(vm, Lcm.SHUTDOWN_UNDEPLOY, action, hard)

    def _hold(self, vm: Vm) -> None:
        if vm.state is not State.PENDING:
            raise _unavailable(vm)
        self.placement.forget(vm)
        self.enter(vm, State.HOLD)

    def _release(self, vm: Vm) -> None:
        if vm.state is not State.HOLD:
            raise _unavailable(vm)
        self.enter(vm, State.PENDING)

    def _stop(self, vm: Vm) -> None:
        if vm.state is not State.SUSPENDED and vm.lcm is not Lcm.RUNNING:
            raise _unavailable(vm)
        self._end_history(vm, Act.STOP)
        self.enter(vm, Lcm.EPILOG_STOP if vm.state is State.SUSPENDED else Lcm.SAVE_STOP)

    def _suspend(self, vm: Vm) -> None:
        if vm.lcm is not Lcm.RUNNING:
            raise _unavailable(vm)
        self._end_history(vm, Act.SUSPEND)
        self.enter(vm, Lcm.SAVE_SUSPEND)

    def _resume(self, vm: Vm) -> None:
        back = {State.POWEROFF: Lcm.BOOT_POWEROFF, State.SUSPENDED: Lcm.BOOT_SUSPENDED}
        if vm.state not in _RESTING and vm.lcm is not Lcm.UNKNOWN:
            raise _unavailable(vm)
        if not vm.running_quota:
            for whose, quota, defaults in self._cloud.quotas(vm.uid, vm.gid):
                reason = quota.check(running_request(vm), defaults)
                if reason:
                    raise RefusedError(Code.ACTION, f"{whose} {reason}")
            for _, quota, _ in self._cloud.quotas(vm.uid, vm.gid):
                quota.add(running_request(vm))
            vm.running_quota = True
        if vm.state in (State.STOPPED, State.UNDEPLOYED):
            self.enter(vm, State.PENDING)
        else:
            self.enter(vm, back.get(vm.state, Lcm.BOOT_UNKNOWN))

    def _reboot(self, vm: Vm) -> None:
        if vm.lcm is not Lcm.RUNNING:
            raise _unavailable(vm)
        vm.rescheduled = False

    def _resched(self, vm: Vm, on: bool) -> None:
        if vm.state is not State.POWEROFF and vm.lcm not in _UP:
            raise _unavailable(vm)
        vm.rescheduled, vm.rendered = on, None

    # Recoveries

    def _repair(self, vm: Vm, operation: int) -> None:
        if vm.state is not State.ACTIVE:
            raise RefusedError(Code.ACTION, f"Recover action is not available for state {vm.state_name}")
        failed_from = _FAILED_PHASE.get(vm.lcm)
        phase = _PHASES.get(failed_from or vm.lcm)
        if operation == 2:
            if failed_from is not None:
                self.enter(vm, failed_from)
        elif vm.lcm is Lcm.UNKNOWN:
            self.enter(vm, Lcm.RUNNING)
        elif phase is not None and operation == 1:
            self.enter(vm, phase.then)
        elif phase is not None and failed_from is None and phase.fails is not None:
            self.enter(vm, phase.fails, error=_ERRORS[phase.step] if phase.step else "")

    def _recreate(self, vm: Vm) -> None:
        refusals = {
            State.POWEROFF: "Cannot delete-recreate a powered off VM. Resume it first",
            State.SUSPENDED: "Cannot delete-recreate a suspended VM. Resume it first",
            State.DONE: "Cannot delete-recreate a VM already in DONE state",
        }
        if vm.state in refusals:
            raise RefusedError(Code.ACTION, refusals[vm.state])
        self._end_history(vm, Act.DELETE_RECREATE)
        if vm.state is State.ACTIVE:
            vm.user_template.remove("READY")
            self.enter(vm, Lcm.CLEANUP_RESUBMIT)
        elif vm.state in (State.STOPPED, State.UNDEPLOYED, State.HOLD):
            self.enter(vm, State.PENDING)


class _WrongStateError(Exception):
    """An action that the state does not allow."""


def _unavailable(vm: Vm) -> _WrongStateError:
    return _WrongStateError(f"This action is not available for state {vm.state_name}")


def running_request(vm: Vm) -> dict[str, float]:
    """Return the amounts by which a running VM uses the quota of running VMs."""
    return {"RUNNING_VMS": 1, "RUNNING_MEMORY": vm.memory_mib, "RUNNING_CPU": vm.cores}
