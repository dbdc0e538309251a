# SPDX-License-Identifier: Apache-2.0
"""The site interface (``simyard_sites.base``), its conformance suite, the Kubernetes client, a package per provider."""
