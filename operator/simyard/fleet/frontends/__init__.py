# SPDX-License-Identifier: Apache-2.0
"""The OCCI frontends of services: their objects, permissions and load, and their access to the broker."""
