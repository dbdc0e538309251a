# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of starts, OCCI frontends and sites, each beside a yardstick: ``make bench-*``."""
