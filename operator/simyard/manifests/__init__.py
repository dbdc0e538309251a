# SPDX-License-Identifier: Apache-2.0
"""Pure builders of manifests: CustomResourceDefinitions, access rules, admission policies, Services."""
