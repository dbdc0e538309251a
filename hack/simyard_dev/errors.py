# SPDX-License-Identifier: Apache-2.0
"""Define the errors of a development environment."""


class SetupError(Exception):
    """A prerequisite of the environment is missing or failed; the message names it and the remedy."""
