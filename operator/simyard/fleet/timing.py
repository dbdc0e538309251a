# SPDX-License-Identifier: Apache-2.0
"""The waiting times of the operator's work, as one object. An installation uses the defaults.

Shorter times would make the operator faster, and would put more load on the API server, the broker and the sites. The
times are not settings of an installation, because users see no difference. Tests inject shorter times.
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
    """The waiting times of one operator.

    Attributes:
        status_spacing_seconds: the least time between two writes of the status of a pool, a site or a service.
        stages_delay_seconds: the delay before a status write, so that several changes of a Worker share one write.
        teardown_check_seconds: the interval between two checks of a pool that is being deleted.
        broker_retry_seconds: the delay before a further attempt to prepare the broker.
        sweep_settle_seconds: the time for which a sweep waits until new Workers and pools have reached the cache.
        broker_wait_seconds: the delay before the next attempt to request a machine whose broker user does not exist.
        site_retry_first_seconds: the first pause after a failure of a site; it doubles with each further failure.
        defect_pause_seconds: the pause before a site whose runner failed because of a defect gets a new runner.
        read_on_seconds: the time for which the operator reads events after it deleted the queue of a lost worker.
        quarantine_first_seconds: the first pause for which a broker user is cut off; each further pause is twice as
            long.
        rotation_first_seconds: the first pause between two passes of a rotation of passwords; it doubles with each pass
            without progress.
        rotation_max_seconds: the longest pause between two passes of a rotation.
        login_linger_seconds: the time for which former logins stay valid after all workers use the newest login.
        login_deadline_seconds: the time after which former logins are deleted, even if a worker still uses one.
        deletion_confirm_seconds: the time after an accepted deletion until the operator asks whether the machine is
            gone.
        default_drain_seconds: the time in which a worker without a ServiceAction can finish its Sync requests.
        takers_spacing_seconds: the least time between two batches of requests to the workers of a pool.
        frontend_look_seconds: the time between two readings of the frontends' load, as in Kubernetes' HPA.
        frontend_spacing_seconds: the least time between two passes over the frontends of a service.
        usage_spacing_seconds: the least time between two writes of the account of a namespace.
        usage_started_seconds: the delay before the start of machines is written; if an operator fails before the
            write, no use is lost.
        usage_idle_seconds: the time between two writes of an account while no machine starts or ends.
        platform_look_seconds: the time between two checks of the platform.
        platform_healed_seconds: the time without a problem after which the platform counts as healthy again.
        actions: the waiting times for each ServiceAction.
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
