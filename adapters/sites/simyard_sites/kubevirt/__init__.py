"""The provider ``kubevirt``: workers are KubeVirt VirtualMachineInstances."""

from simyard_sites.kubevirt.site import KubevirtSite

__all__ = ["KubevirtSite"]
