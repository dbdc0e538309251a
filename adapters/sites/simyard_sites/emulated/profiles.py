# SPDX-License-Identifier: Apache-2.0
"""Defines the named profiles of emulated clouds.

``docs/emulated-clouds.md`` gives the source of each number, and the accuracy of each profile.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping


class Profile(enum.StrEnum):
    """A cloud whose start times were measured and published; ``instant`` is not such a cloud and takes no time."""

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
"""The settings of each profile by their path below ``spec.provider.emulated``; other settings are 0."""
