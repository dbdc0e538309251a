# SPDX-License-Identifier: Apache-2.0
"""Builds the data that make a virtual machine a worker: user data or context. Pure.

The image has systemd, the command ``simyard-adapter``, and either cloud-init (:func:`build_user_data`) or OpenNebula's
contextualisation (:func:`build_context`). See docs/sites/guest-images.md.
"""

from simyard_sites.guest.cloud_init import build_user_data
from simyard_sites.guest.one_context import build_context

__all__ = ["build_context", "build_user_data"]
