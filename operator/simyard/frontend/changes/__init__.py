# SPDX-License-Identifier: Apache-2.0
"""Requests that change something: creations, updates, deletions and actions."""
