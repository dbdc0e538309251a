"""Makes the bulk calls to a site, and hands on what each says of its items and of the site."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter as Tally
from collections.abc import AsyncIterator, Callable, Sequence

from prometheus_client import Counter

from simyard.fleet.bulk import Told
from simyard.fleet.site_health import SiteHealth
from simyard.plan.breaker import DefectError, verdict
from simyard.plan.machine import Step
from simyard.plan.pace import retry_after
from simyard_sites.base import Machine, Outcome, Site, SiteError, ThrottledError, UnknownOutcomeError

log = logging.getLogger(__name__)

REQUESTS = Counter(
    "simyard_site_requests_total", "Items of bulk calls to a site, by outcome.", ["site", "call", "outcome"]
)
SILENCE_SECONDS = 120.0
"""A call that gives no outcome for so long is given up. Providers have deadlines of their own; this is the last one."""


async def carry_out(
    name: str,
    health: SiteHealth,
    step: Step,
    keys: Sequence[str],
    call: AsyncIterator[Outcome],
    take: Callable[[Outcome], None],
) -> Told:
    """Give every key's outcome to ``take``, be it of its own, of the whole call, or that there was none."""
    clock = asyncio.get_running_loop().time
    begun = clock()
    left = dict.fromkeys(keys)
    errors: list[SiteError | None] = []

    def answered(outcome: Outcome) -> None:
        left.pop(outcome.key, None)
        errors.append(outcome.error)
        take(outcome)

    failure: SiteError | None = None
    try:
        async with asyncio.timeout(SILENCE_SECONDS) as deadline:
            async for outcome in call:
                deadline.reschedule(clock() + SILENCE_SECONDS)
                answered(outcome)
    except SiteError as error:
        failure = error
    except TimeoutError:
        failure = UnknownOutcomeError(f"the site was silent for {SILENCE_SECONDS:.0f} s")
    if left:
        failure = failure or UnknownOutcomeError("the site did not answer for it")
        log.warning("site %s: %s of %d machines: %s", name, step.name.lower(), len(keys), failure)
        for key in list(left):
            answered(Outcome(key, error=failure))
    for reason, count in Tally(error.reason if error else "OK" for error in errors).items():
        REQUESTS.labels(name, step.name.lower(), reason).inc(count)
    throttled = [error for error in errors if isinstance(error, ThrottledError)]
    waits = [seconds for error in throttled if (seconds := retry_after(error)) is not None]
    if waits:
        health.throttled(throttled[-1], max(waits))
    judged = verdict(errors, whole=failure is not None)
    if judged is True:
        health.served()
    elif judged is not None:
        health.failed(judged)
    return Told(
        seconds=clock() - begun,
        accepted=errors.count(None),
        throttled=len(throttled),
        retry_after_seconds=max(waits, default=None),
        broken=judged if isinstance(judged, SiteError) else None,
    )


class Look:
    """Lists what is there: after answers were lost, before anything is asked for again. Gives ``take`` what it finds.

    A list that was begun earlier may not show what was just made. So who asks meanwhile waits for the next one, which
    is shared by all who wait.
    """

    def __init__(self, name: str, provider: Site, health: SiteHealth, take: Callable[[Machine], None]) -> None:
        self._name = name
        self._provider = provider
        self._health = health
        self._take = take
        self._one = asyncio.Lock()
        self._begun = 0

    async def again(self) -> None:
        """Have a list that begins now or later, unless the breaker forbids it or the site does not answer."""
        begun = self._begun
        async with self._one:
            if self._begun > begun or self._health.permitted == 0:
                return
            self._begun += 1
            try:
                async with asyncio.timeout(SILENCE_SECONDS):
                    machines = await self._provider.list_owned()
            except (SiteError, TimeoutError) as error:
                log.warning("site %s: %s", self._name, error)
                if isinstance(error, DefectError):
                    self._health.failed(error)
                return
            for machine in machines:
                self._take(machine)
