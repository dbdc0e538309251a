# SPDX-License-Identifier: Apache-2.0
"""The provider ``openNebula``: workers as virtual machines of an OpenNebula cloud, over its XML-RPC API."""

from simyard_sites.opennebula.site import OpenNebulaSite

__all__ = ["OpenNebulaSite"]
