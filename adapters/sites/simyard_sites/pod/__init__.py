# SPDX-License-Identifier: Apache-2.0
"""The provider ``pod``: workers are pods of a Kubernetes cluster."""

from simyard_sites.pod.site import PodSite

__all__ = ["PodSite"]
