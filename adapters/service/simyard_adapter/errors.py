# SPDX-License-Identifier: Apache-2.0
"""The errors of the adapter: those that a connector raises, and those that end the adapter."""

from __future__ import annotations


class ActionError(Exception):
    """A refusal or failure of the simulation program; the caller receives the message."""


class ParameterError(ActionError):
    """A refusal of a parameter, for a reason that its declaration cannot express.

    Attributes:
        field: The path of the parameter, such as ``parameters.deck``.
        problem: The reason of the refusal.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class FileTransferError(ActionError):
    """A file of an action that could not be downloaded or uploaded; a retry does not help."""


class ActionCancelledError(Exception):
    """The end of an invocation that was cancelled or timed out; the connector must not catch it."""


class StartError(Exception):
    """A wrong bootstrap document or connector, with which the adapter cannot start."""


class HungError(Exception):
    """An action that ignores the request to stop and blocks its worker; only the end of the adapter helps."""


class MachineError(Exception):
    """A directory or file of the machine that the adapter cannot use."""
