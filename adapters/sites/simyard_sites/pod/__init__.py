"""The provider ``pod``: workers as pods of a Kubernetes cluster."""

from simyard_sites.pod.site import PodSite

__all__ = ["PodSite"]
