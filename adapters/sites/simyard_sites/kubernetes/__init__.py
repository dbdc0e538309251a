# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes client of sites and of the control plane: requests, errors, resources, lists and watches.

The control plane imports this package too (:mod:`simyard.kube` builds its caches on it). The package is here because
two providers, pods and KubeVirt, are clients of Kubernetes clusters, and a site must not import the control plane. The
package contains nothing about Simyard's kinds.
"""
