# SPDX-License-Identifier: Apache-2.0
"""The service adapter: it offers a simulation program's attributes and actions over RabbitMQ, from inside a worker."""

from simyard_adapter.connector import Connector, action, attribute, parameter
from simyard_adapter.context import Context
from simyard_adapter.errors import ActionCancelledError, ActionError, ParameterError

__all__ = [
    "ActionCancelledError",
    "ActionError",
    "Connector",
    "Context",
    "ParameterError",
    "action",
    "attribute",
    "parameter",
]
__version__ = "0.1.0"
