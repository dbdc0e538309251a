"""What goes wrong while a development environment is built, started or stopped."""


class SetupError(Exception):
    """Something the environment needs is missing or failed; the message says what, and what to do."""
