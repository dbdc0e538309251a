# SPDX-License-Identifier: Apache-2.0
"""KubeVirt without nodes and guests, for tests and benchmarks: simulated, on a real API server."""

from simyard_simulators.virt.lifecycle import Latencies
from simyard_simulators.virt.simulator import SimulatedKubeVirt

__all__ = ["Latencies", "SimulatedKubeVirt"]
