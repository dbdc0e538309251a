# SPDX-License-Identifier: Apache-2.0
"""Makes the bulk calls to a site, and decides from the answers whether the site works."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter as Tally
from collections.abc import AsyncIterator, Callable, Sequence

from prometheus_client import Counter

from simyard.fleet.sites.batch_queue import BatchResult
from simyard.fleet.sites.health import SiteHealth
from simyard.plan.breaker import DefectError, judge_call
from simyard.plan.machine import Step
from simyard.plan.pace import get_retry_after
from simyard_sites.base import Machine, Outcome, Site, SiteError, ThrottledError, UnknownOutcomeError

log = logging.getLogger(__name__)

REQUESTS = Counter(
    "simyard_site_requests_total", "Items of bulk calls to a site, by outcome.", ["site", "call", "outcome"]
)
SILENCE_SECONDS = 120.0
"""If a call brings no outcome for this time, it fails. The timeouts of the providers are shorter."""


async def carry_out(
    name: str,
    health: SiteHealth,
    step: Step,
    keys: Sequence[str],
    call: AsyncIterator[Outcome],
    apply: Callable[[Outcome], None],
) -> BatchResult:
    """Carry out a call: pass the outcome of every key to ``apply``, and return the result of the whole call.

    If the call fails, each key without an outcome gets the error of the call. A key that the site's answer does not
    mention gets an UnknownOutcomeError.
    """
    clock = asyncio.get_running_loop().time
    begun = clock()
    left = dict.fromkeys(keys)
    errors: list[SiteError | None] = []

    def answered(outcome: Outcome) -> None:
        left.pop(outcome.key, None)
        errors.append(outcome.error)
        apply(outcome)

    failure: SiteError | None = None
    try:
        async with asyncio.timeout(SILENCE_SECONDS) as deadline:
            async for outcome in call:
                deadline.reschedule(clock() + SILENCE_SECONDS)
                answered(outcome)
    except SiteError as error:
        failure = error
    except TimeoutError:
        failure = UnknownOutcomeError(f"the site sent no answer for {SILENCE_SECONDS:.0f} s")
    if left:
        failure = failure or UnknownOutcomeError("the answer of the site does not mention this machine")
        log.warning("site %s: %s of %d machines: %s", name, step.name.lower(), len(keys), failure)
        for key in list(left):
            answered(Outcome(key, error=failure))
    for reason, count in Tally(error.reason if error else "OK" for error in errors).items():
        REQUESTS.labels(name, step.name.lower(), reason).inc(count)
    throttled = [error for error in errors if isinstance(error, ThrottledError)]
    waits = [seconds for error in throttled if (seconds := get_retry_after(error)) is not None]
    if waits:
        health.record_throttling(throttled[-1], max(waits))
    judged = judge_call(errors, whole=failure is not None)
    if judged is True:
        health.record_success()
    elif judged is not None:
        health.record_failure(judged)
    return BatchResult(
        seconds=clock() - begun,
        accepted=errors.count(None),
        throttled=len(throttled),
        retry_after_seconds=max(waits, default=None),
        broken=judged if isinstance(judged, SiteError) else None,
    )


class MachineListing:
    """Reader of the list of a site's machines, which the sender needs before it repeats requests without an answer.

    While a list is being read, the site may create a machine that this list lacks. So a caller that asks during this
    time waits for the next list, which all waiting callers share. The reader passes each listed machine to ``apply``.
    """

    def __init__(self, name: str, provider: Site, health: SiteHealth, apply: Callable[[Machine], None]) -> None:
        self._name = name
        self._provider = provider
        self._health = health
        self._apply = apply
        self._one = asyncio.Lock()
        self._begun = 0

    async def refresh(self) -> None:
        """Wait until a list that begins after this call is read.

        The method returns without a list if the breaker is open or the site does not answer.
        """
        begun = self._begun
        async with self._one:
            if self._begun > begun or self._health.permitted == 0:
                return
            self._begun += 1
            try:
                async with asyncio.timeout(SILENCE_SECONDS):
                    machines = await self._provider.list_owned()
            except (SiteError, TimeoutError) as error:
                log.warning("site %s: its machines cannot be listed: %s", self._name, error)
                if isinstance(error, DefectError):
                    self._health.record_failure(error)
                return
            for machine in machines:
                self._apply(machine)
