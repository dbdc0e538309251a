# SPDX-License-Identifier: Apache-2.0
"""Simulates KubeVirt without nodes and guests on a real API server, for tests and benchmarks."""

from simyard_simulators.virt.lifecycle import Latencies
from simyard_simulators.virt.simulator import SimulatedKubeVirt

__all__ = ["Latencies", "SimulatedKubeVirt"]
