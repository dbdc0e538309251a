"""``kubectl simyard``: services, pools, workers, actions and attributes from the command line."""

from simyard.cli.app import main

__all__ = ["main"]
