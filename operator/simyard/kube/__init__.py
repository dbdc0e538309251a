# SPDX-License-Identifier: Apache-2.0
"""Local state of the Kubernetes API in the control plane: the cache of objects, and the leader's Lease."""
