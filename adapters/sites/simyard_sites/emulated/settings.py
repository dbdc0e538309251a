# SPDX-License-Identifier: Apache-2.0
"""Reads the settings of an emulated cloud: the member ``emulated`` of ``spec.provider`` of a CloudSite."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from simyard_sites.base import ErrorScope, InvalidSpecError
from simyard_sites.emulated.profiles import PROFILES, Profile

_PATH = "spec.provider.emulated"
_DAY = 86_400_000
_MANY = 1_000_000
_HOSTS = 10_000
_THREADS = 10_000
_Member = TypeVar("_Member", bound=enum.StrEnum)


class GuestKind(enum.StrEnum):
    """The kind of the guests: each adapter is a separate process, or one process runs all adapters."""

    PROCESS = "process"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of an emulated cloud. ``docs/emulated-clouds.md`` explains each number. 0 means none, or no limit.

    ``simyard.api.providers.emulated`` has the defaults of a CloudSite, and each profile has the numbers that a
    CloudSite does not set. Times and rates are in the cloud's own time; :meth:`compute_seconds` converts them to real
    time.
    """

    guests: GuestKind
    profile: Profile
    time_scale_percent: int
    pending_milliseconds: int = 0
    prolog_milliseconds: int = 0
    boot_milliseconds: int = 0
    jitter_percent: int = 0
    failure_percent: int = 0
    lost_events_percent: int = 0
    lost_answers_percent: int = 0
    call_milliseconds: int = 0
    item_milliseconds: int = 0
    calls_in_flight: int = 0
    creates_per_second: int = 0
    create_burst: int = 1
    retry_after_milliseconds: int = 0
    requests_per_second: int = 0
    request_burst: int = 0
    requests_per_machine: int = 0
    interval_milliseconds: int = 0
    machines_per_interval: int = 0
    machines_per_host_and_interval: int = 0
    threads: int = 0
    operation_milliseconds: int = 0
    hosts: int = 0
    operations_per_host: int = 0
    machines_per_host: int = 0

    @classmethod
    def from_provider(cls, provider: Mapping[str, Any]) -> Settings:
        """Read the member ``emulated``; missing numbers come from its profile.

        Raises:
            InvalidSpecError: A field is wrong; the message names it and the accepted values.
        """
        guests = _member(provider, "guests", GuestKind)
        profile = _member(provider, "profile", Profile)
        time_scale_percent = _number(provider, "timeScalePercent", 1, 1000)
        if time_scale_percent is None:
            raise InvalidSpecError(f"{_PATH}.timeScalePercent: is required", scope=ErrorScope.SITE)
        values = {name: _number(provider, path, least, most) for name, (path, least, most) in _NUMBERS.items()}
        given = {name: value for name, value in values.items() if value is not None}
        return cls(guests, profile, time_scale_percent, **(_of_profile(profile) | given))

    def to_provider(self) -> dict[str, Any]:
        """Return the settings in the form that :meth:`from_provider` reads, with every number."""
        provider: dict[str, Any] = {
            "guests": self.guests.value,
            "profile": self.profile.value,
            "timeScalePercent": self.time_scale_percent,
        }
        for name, (path, _, _) in _NUMBERS.items():
            group, _, key = path.rpartition(".")
            members = provider.setdefault(group, {}) if group else provider
            members[key] = getattr(self, name)
        return provider

    @property
    def title(self) -> str:
        """The profile, a note if single settings differ from it, and the time scale unless it is 100 %."""
        plain = type(self)(self.guests, self.profile, self.time_scale_percent, **_of_profile(self.profile))
        adjusted = "" if self == plain else " (adjusted)"
        scale = "" if self.time_scale_percent == 100 else f" at {self.time_scale_percent} % of its time"
        return f"{self.profile}{adjusted}{scale}"

    def compute_seconds(self, milliseconds: float) -> float:
        """Return a duration of the cloud in real seconds."""
        return milliseconds * self.time_scale_percent / 100_000

    def compute_interval(self, rate: int) -> float:
        """Return the real time between two events of a rate (per second of the cloud); 0 if the rate has no limit."""
        return self.compute_seconds(1000 / rate) if rate else 0.0


_NUMBERS: Mapping[str, tuple[str, int, int]] = {
    "pending_milliseconds": ("latencies.pendingMilliseconds", 0, _DAY),
    "prolog_milliseconds": ("latencies.prologMilliseconds", 0, _DAY),
    "boot_milliseconds": ("latencies.bootMilliseconds", 0, _DAY),
    "jitter_percent": ("jitterPercent", 0, 100),
    "failure_percent": ("failurePercent", 0, 100),
    "lost_events_percent": ("lostEventsPercent", 0, 100),
    "lost_answers_percent": ("lostAnswersPercent", 0, 100),
    "call_milliseconds": ("api.callMilliseconds", 0, _DAY),
    "item_milliseconds": ("api.itemMilliseconds", 0, _DAY),
    "calls_in_flight": ("api.callsInFlight", 0, _MANY),
    "creates_per_second": ("api.createsPerSecond", 0, _MANY),
    "create_burst": ("api.createBurst", 1, _MANY),
    "retry_after_milliseconds": ("api.retryAfterMilliseconds", 0, _DAY),
    "requests_per_second": ("controller.requestsPerSecond", 0, _MANY),
    "request_burst": ("controller.requestBurst", 0, _MANY),
    "requests_per_machine": ("controller.requestsPerMachine", 0, _MANY),
    "interval_milliseconds": ("scheduler.intervalMilliseconds", 0, _DAY),
    "machines_per_interval": ("scheduler.machinesPerInterval", 0, _MANY),
    "machines_per_host_and_interval": ("scheduler.machinesPerHostAndInterval", 0, _MANY),
    "threads": ("drivers.threads", 0, _THREADS),
    "operation_milliseconds": ("drivers.operationMilliseconds", 0, _DAY),
    "hosts": ("hosts.count", 0, _HOSTS),
    "operations_per_host": ("hosts.operationsPerHost", 0, _THREADS),
    "machines_per_host": ("hosts.machinesPerHost", 0, _MANY),
}
"""Each number that a profile can set: its path below ``spec.provider.emulated``, its minimum and its maximum."""


def _of_profile(profile: Profile) -> dict[str, Any]:
    return {name: PROFILES[profile][path] for name, (path, _, _) in _NUMBERS.items() if path in PROFILES[profile]}


def _member(provider: Mapping[str, Any], name: str, kind: type[_Member]) -> _Member:
    try:
        return kind(provider.get(name, ""))
    except ValueError:
        raise _invalid(name, provider.get(name), " or ".join(kind)) from None


def _number(provider: Mapping[str, Any], path: str, least: int, most: int) -> int | None:
    """Return the number at this path, or None if it is missing."""
    group, _, name = path.rpartition(".")
    members = provider.get(group, {}) if group else provider
    if not isinstance(members, Mapping):
        raise _invalid(group, members, "an object")
    value = members.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _invalid(path, value, f"an integer from {least} to {most}")
    return value


def _invalid(path: str, value: object, accepted: str) -> InvalidSpecError:
    return InvalidSpecError(f"{_PATH}.{path}: {value!r} is not {accepted}", scope=ErrorScope.SITE)
