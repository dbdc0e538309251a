# SPDX-License-Identifier: Apache-2.0
"""Benchmark of OCCI frontends: ``make bench-occi``; ``bench-plot`` and ``bench-check`` read its results too."""
