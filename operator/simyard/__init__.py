# SPDX-License-Identifier: Apache-2.0
"""Simyard: a Kubernetes operator that offers simulation software as a service."""
