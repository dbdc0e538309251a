# SPDX-License-Identifier: Apache-2.0
"""The kubectl plugin ``kubectl simyard``: lists services, pools and workers, calls actions, reads attributes."""

from simyard.cli.app import main

__all__ = ["main"]
