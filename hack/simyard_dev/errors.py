# SPDX-License-Identifier: Apache-2.0
"""Errors of building, starting and stopping a development environment."""


class SetupError(Exception):
    """A prerequisite of the environment is missing or failed; the message names it and the remedy."""
