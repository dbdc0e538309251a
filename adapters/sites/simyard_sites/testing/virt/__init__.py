"""KubeVirt without nodes and guests, for tests and benchmarks: simulated, on a real API server."""

from simyard_sites.testing.virt.lifecycle import Latencies
from simyard_sites.testing.virt.simulator import SimulatedKubeVirt

__all__ = ["Latencies", "SimulatedKubeVirt"]
