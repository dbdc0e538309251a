# SPDX-License-Identifier: Apache-2.0
"""Settings of the kinds of sites: one module for each member of `spec.provider` of a CloudSite."""
