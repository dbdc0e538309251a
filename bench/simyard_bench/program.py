"""The simulation program of the benchmark: it does nothing, so that only the platform is measured."""

from simyard_adapter import Connector, Context, action, attribute


class Program(Connector):
    """One attribute and one action."""

    state = attribute("string", default="idle")

    @action()
    def run(self, context: Context) -> None:
        """Do nothing."""
