# SPDX-License-Identifier: Apache-2.0
"""OCCI over HTTP: serves connections, reads requests, and writes responses."""
