# SPDX-License-Identifier: Apache-2.0
"""Benchmark of sites: ``make bench-sites``; ``bench-plot`` and ``bench-check`` read its results too."""
