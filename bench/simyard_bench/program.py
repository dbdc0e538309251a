# SPDX-License-Identifier: Apache-2.0
"""Simulation program of the benchmarks. It does nothing, so that they measure only the platform."""

from simyard_adapter import Connector, Context, action, attribute


class Program(Connector):
    """A program with one attribute and one action."""

    state = attribute("string", default="idle")

    @action()
    def run(self, context: Context) -> None:
        """Do nothing."""
