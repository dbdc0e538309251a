"""The errors of the adapter: what a connector raises, and why an adapter cannot start."""

from __future__ import annotations


class ActionError(Exception):
    """The simulation program refused or failed; the message is the program's own and goes to the caller."""


class ParameterError(ActionError):
    """A parameter is refused for a reason that its declaration cannot express.

    Attributes:
        field: its path, such as ``parameters.deck``.
        problem: what is wrong with it.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class ActionCancelledError(Exception):
    """The invocation was cancelled or timed out; raised inside the connector, which lets it pass."""


class StartError(Exception):
    """The adapter cannot start: its bootstrap document or its connector is wrong; the message says what."""


class HungError(Exception):
    """An action ignores that it was stopped, and holds its worker: only the end of the adapter helps."""


class MachineError(Exception):
    """The adapter cannot start: the machine's directory cannot be used; the message says why."""
