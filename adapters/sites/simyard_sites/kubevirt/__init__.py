# SPDX-License-Identifier: Apache-2.0
"""The provider ``kubevirt``: workers are VirtualMachineInstances of KubeVirt."""

from simyard_sites.kubevirt.site import KubevirtSite

__all__ = ["KubevirtSite"]
