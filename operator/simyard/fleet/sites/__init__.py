# SPDX-License-Identifier: Apache-2.0
"""CloudSites: their machines, their health, and the calls to their providers."""
