# SPDX-License-Identifier: Apache-2.0
"""The control plane's caches of Kubernetes objects, and the Lease of the leading operator."""
