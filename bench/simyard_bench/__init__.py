# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of starts, OCCI frontends, sites and files, each compared with a yardstick: ``make bench-*``."""
