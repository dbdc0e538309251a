"""A simulated oned: the XML-RPC API of OpenNebula 5.12 to 7.x over a cloud that is only remembered.

For tests of clients, and in a pod of its own. What it does is written from OpenNebula's documentation, the facts that
its source states (codes, texts, states) and measurements of a real oned 7.4; what it does not do is in
``docs/sites/opennebula.md``. In-process::

    async with Oned(Settings(time_scale=0.01, cost_scale=0)) as oned:
        client = pyone.OneServer(oned.url, session="simyard:secret")

As a process: ``python -m simyard_sites.testing.oned --listen 127.0.0.1:2633``.
"""

from simyard_sites.testing.oned.cloud import Cloud
from simyard_sites.testing.oned.faults import Counters, Faults, HttpAnswer
from simyard_sites.testing.oned.lifecycle import LifeCycle
from simyard_sites.testing.oned.machine import Vm
from simyard_sites.testing.oned.server import Oned
from simyard_sites.testing.oned.settings import (
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
from simyard_sites.testing.oned.states import Code, Lcm, State

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
