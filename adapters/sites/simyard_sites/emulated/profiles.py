"""The named profiles of emulated clouds.

Where each number comes from, and how close a profile is to what was published, is in ``docs/emulated-clouds.md``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping


class Profile(enum.StrEnum):
    """A cloud whose start of machines was measured and published; ``instant`` is none and takes no time."""

    INSTANT = "instant"
    CLOUD4E_2014 = "cloud4e-2014"
    OPENNEBULA_2015_DEFAULT = "opennebula-2015-default"
    OPENNEBULA_2015_TUNED = "opennebula-2015-tuned"
    KUBEVIRT_DEFAULT = "kubevirt-default"
    KUBEVIRT_TUNED = "kubevirt-tuned"


_OPENNEBULA = {
    "api.callMilliseconds": 25,
    "api.itemMilliseconds": 15,
    "api.callsInFlight": 30,
    "hosts.count": 13,
    "drivers.operationMilliseconds": 4200,
    "jitterPercent": 10,
}
_KUBEVIRT = {
    "api.itemMilliseconds": 1,
    "api.callsInFlight": 200,
    "api.retryAfterMilliseconds": 1000,
    "controller.requestsPerMachine": 7,
    "drivers.threads": 10,
    "drivers.operationMilliseconds": 588,
    "latencies.prologMilliseconds": 7000,
    "latencies.bootMilliseconds": 8000,
    "jitterPercent": 10,
}

PROFILES: Mapping[Profile, Mapping[str, int]] = {
    Profile.INSTANT: {},
    Profile.CLOUD4E_2014: {
        "api.itemMilliseconds": 333,
        "latencies.pendingMilliseconds": 10_000,
        "latencies.prologMilliseconds": 45_000,
        "latencies.bootMilliseconds": 60_000,
        "jitterPercent": 2,
    },
    Profile.OPENNEBULA_2015_DEFAULT: _OPENNEBULA
    | {
        "scheduler.intervalMilliseconds": 30_000,
        "scheduler.machinesPerInterval": 30,
        "scheduler.machinesPerHostAndInterval": 1,
        "drivers.threads": 15,
        "hosts.operationsPerHost": 1,
        "latencies.prologMilliseconds": 28_000,
        "latencies.bootMilliseconds": 30_000,
    },
    Profile.OPENNEBULA_2015_TUNED: _OPENNEBULA
    | {
        "scheduler.intervalMilliseconds": 1000,
        "hosts.operationsPerHost": 3,
        "latencies.prologMilliseconds": 8_000,
        "latencies.bootMilliseconds": 15_000,
    },
    Profile.KUBEVIRT_DEFAULT: _KUBEVIRT | {"controller.requestsPerSecond": 5, "controller.requestBurst": 10},
    Profile.KUBEVIRT_TUNED: _KUBEVIRT | {"controller.requestsPerSecond": 400, "controller.requestBurst": 400},
}
"""Settings by profile and by their path below ``spec.provider.emulated``; what is not named is 0."""
