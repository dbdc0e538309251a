# SPDX-License-Identifier: Apache-2.0
"""CloudSites: their machines and their health, and the calls to their providers."""
