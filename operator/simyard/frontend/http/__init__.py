# SPDX-License-Identifier: Apache-2.0
"""OCCI over HTTP: connections, the parts of a request, and responses."""
