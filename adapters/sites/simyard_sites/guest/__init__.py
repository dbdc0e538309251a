"""What a virtual machine is given so that it becomes a worker; pure.

The image has systemd, the command ``simyard-adapter`` and either cloud-init (:func:`user_data`) or OpenNebula's
contextualisation (:func:`context`). See docs/sites/guest-images.md.
"""

from simyard_sites.guest.cloud_init import user_data
from simyard_sites.guest.one_context import context

__all__ = ["context", "user_data"]
