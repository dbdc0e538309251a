# SPDX-License-Identifier: Apache-2.0
"""The OCCI frontends of services: their objects, rights, load and access to the broker."""
