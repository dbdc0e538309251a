# SPDX-License-Identifier: Apache-2.0
"""Simyard's objects as OCCI entities, categories and collections."""
