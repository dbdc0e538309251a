# SPDX-License-Identifier: Apache-2.0
"""Simulated clouds for tests, the development environment and benchmarks: oned, KubeVirt, and faults of API servers."""
