# SPDX-License-Identifier: Apache-2.0
"""Builders of manifests, without I/O: CustomResourceDefinitions, RBAC rules, admission policies, Services, Workers."""
