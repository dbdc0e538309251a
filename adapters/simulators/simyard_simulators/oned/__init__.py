# SPDX-License-Identifier: Apache-2.0
"""Simulates oned: the XML-RPC API of OpenNebula 5.12 to 7.x over a cloud in memory.

It is for tests of clients, and can also run as a separate process. Its behaviour follows OpenNebula's documentation,
its source (codes, texts, states) and measurements of a real oned 7.4. ``docs/sites/opennebula.md`` lists its limits.
In-process::

    async with Oned(Settings(time_scale=0.01, cost_scale=0)) as oned:
        client = pyone.OneServer(oned.url, session="simyard:secret")

As a process: ``python -m simyard_simulators.oned --listen 127.0.0.1:2633``.
"""

from simyard_simulators.oned.cloud import Cloud
from simyard_simulators.oned.faults import Counters, Faults, HttpAnswer
from simyard_simulators.oned.lifecycle import LifeCycle
from simyard_simulators.oned.machine import Vm
from simyard_simulators.oned.server import Oned
from simyard_simulators.oned.settings import (
    MM_SCHED,
    STOCK,
    WIDE,
    Costs,
    Failure,
    Latencies,
    Scheduler,
    Settings,
    Step,
)
from simyard_simulators.oned.states import Code, Lcm, State

__all__ = [
    "MM_SCHED",
    "STOCK",
    "WIDE",
    "Cloud",
    "Code",
    "Costs",
    "Counters",
    "Failure",
    "Faults",
    "HttpAnswer",
    "Latencies",
    "Lcm",
    "LifeCycle",
    "Oned",
    "Scheduler",
    "Settings",
    "State",
    "Step",
    "Vm",
]
