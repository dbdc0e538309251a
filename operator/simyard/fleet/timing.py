# SPDX-License-Identifier: Apache-2.0
"""The times that pace the operator's work, as one object; production uses the defaults.

These times trade speed for load on the API server, the broker and the sites. They are not settings of an installation:
users see no difference. Tests inject shorter ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from simyard.plan.actions import ACTION_TIMES, ActionTimes
from simyard.plan.platform import HEALED_SECONDS
from simyard.plan.rotation import DEADLINE_SECONDS, LINGER_SECONDS
from simyard.plan.scale_in import DEFAULT_DRAIN_SECONDS
from simyard.plan.worker_machines import CONFIRM_SECONDS


@dataclass(frozen=True, slots=True)
class Timing:
    """The pauses of one operator.

    Attributes:
        status_spacing_seconds: the least time between two writes of the status of a pool, a site or a service.
        stages_delay_seconds: the delay before a status write, so that several changes of a Worker share one write.
        teardown_check_seconds: the time between two looks at a pool that is being deleted.
        broker_retry_seconds: the delay before a further attempt to prepare the broker.
        sweep_settle_seconds: the time in a sweep for which new users and queues may wait for their Worker or pool.
        broker_wait_seconds: the delay before a machine is requested again whose broker user does not exist yet.
        site_retry_first_seconds: the first pause after a failure of a site; it doubles with each further failure.
        defect_pause_seconds: the time for which a site whose provider has a defect is left alone.
        read_on_seconds: the time for which events are read after the queue of a dead worker was deleted.
        quarantine_first_seconds: the first pause for which a broker user is cut off; each further pause is twice as
            long.
        rotation_first_seconds: the first pause between two passes of a rotation of passwords; it doubles while there is
            no progress.
        rotation_max_seconds: the longest pause between two passes of a rotation.
        login_linger_seconds: the time for which former logins stay valid after a rotation.
        login_deadline_seconds: the time in which every worker must use its newest login; then it is cut off.
        deletion_confirm_seconds: the time after which a site is asked whether it has deleted a machine.
        default_drain_seconds: the time that a worker without a ServiceAction gets to finish its Sync requests.
        takers_spacing_seconds: the least time between two batches of requests to the workers of a pool.
        frontend_look_seconds: the time between two readings of the frontends' load; the same as for Kubernetes' HPA.
        frontend_spacing_seconds: the least time between two passes over the frontends of a service.
        usage_spacing_seconds: the least time between two writes of the account of a namespace.
        usage_started_seconds: the delay before the start of machines is written; a start that is never written costs
            no use.
        usage_idle_seconds: the time between two writes of an account while no machine starts or ends.
        platform_look_seconds: the time between two checks of the platform itself.
        platform_healed_seconds: the time without a problem after which the platform counts as healthy again.
        actions: the times that pace each ServiceAction.
    """

    status_spacing_seconds: float = 1.0
    stages_delay_seconds: float = 1.0
    teardown_check_seconds: float = 1.0
    broker_retry_seconds: float = 2.0
    sweep_settle_seconds: float = 5.0
    broker_wait_seconds: float = 1.0
    site_retry_first_seconds: float = 1.0
    defect_pause_seconds: float = 10.0
    read_on_seconds: float = 5.0
    quarantine_first_seconds: float = 30.0
    rotation_first_seconds: float = 5.0
    rotation_max_seconds: float = 20.0
    login_linger_seconds: float = LINGER_SECONDS
    login_deadline_seconds: float = DEADLINE_SECONDS
    deletion_confirm_seconds: float = CONFIRM_SECONDS
    default_drain_seconds: float = DEFAULT_DRAIN_SECONDS
    takers_spacing_seconds: float = 0.2
    frontend_look_seconds: float = 15.0
    frontend_spacing_seconds: float = 1.0
    usage_spacing_seconds: float = 1.0
    usage_started_seconds: float = 10.0
    usage_idle_seconds: float = 3600.0
    platform_look_seconds: float = 15.0
    platform_healed_seconds: float = HEALED_SECONDS
    actions: ActionTimes = ACTION_TIMES


PRODUCTION = Timing()
