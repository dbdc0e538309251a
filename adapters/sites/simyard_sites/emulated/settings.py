"""What a CloudSite says about its emulated cloud: the member ``emulated`` of ``spec.provider``."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simyard_sites.base import ErrorScope, InvalidSpecError

_PATH = "spec.provider.emulated"
_LATENCIES = ("pendingMilliseconds", "prologMilliseconds", "bootMilliseconds")
_DAY = 86_400_000


class GuestKind(enum.StrEnum):
    """What runs in a machine: a process of its own, or one of many adapters in a single process."""

    PROCESS = "process"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Settings:
    """How an emulated cloud behaves.

    The three latencies say how long a machine stays in the stages ``pending``, ``prolog`` and ``boot``. Each is drawn
    anew for each machine, evenly from ``jitter_percent`` below to ``jitter_percent`` above. Of all machines,
    ``failure_percent`` end FAILED instead of RUNNING.
    """

    guests: GuestKind = GuestKind.PROCESS
    pending_milliseconds: int = 0
    prolog_milliseconds: int = 0
    boot_milliseconds: int = 0
    jitter_percent: int = 0
    failure_percent: int = 0

    @classmethod
    def from_provider(cls, provider: Mapping[str, Any]) -> Settings:
        """Read the member ``emulated``; what is not given is at its default.

        Raises:
            InvalidSpecError: names the field that cannot be used, and what it accepts.
        """
        latencies = provider.get("latencies") or {}
        if not isinstance(latencies, Mapping):
            raise _invalid("latencies", latencies, f"an object with {', '.join(_LATENCIES)}")
        try:
            guests = GuestKind(provider.get("guests", GuestKind.PROCESS))
        except ValueError:
            raise _invalid("guests", provider["guests"], " or ".join(GuestKind)) from None
        pending, prolog, boot = (_integer(latencies, name, f"latencies.{name}", _DAY) for name in _LATENCIES)
        jitter, failure = (_integer(provider, name, name, 100) for name in ("jitterPercent", "failurePercent"))
        return cls(guests, pending, prolog, boot, jitter, failure)

    def to_provider(self) -> dict[str, Any]:
        """The same as :meth:`from_provider` reads."""
        values = (self.pending_milliseconds, self.prolog_milliseconds, self.boot_milliseconds)
        return {
            "guests": self.guests.value,
            "latencies": dict(zip(_LATENCIES, values, strict=True)),
            "jitterPercent": self.jitter_percent,
            "failurePercent": self.failure_percent,
        }


def _integer(values: Mapping[str, Any], name: str, path: str, maximum: int) -> int:
    value = values.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
        raise _invalid(path, value, f"an integer from 0 to {maximum}")
    return value


def _invalid(path: str, value: object, accepted: str) -> InvalidSpecError:
    return InvalidSpecError(f"{_PATH}.{path}: {value!r} is not {accepted}", scope=ErrorScope.SITE)
