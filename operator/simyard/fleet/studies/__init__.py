# SPDX-License-Identifier: Apache-2.0
"""Runs studies: gives chunks of tasks to workers, and keeps the sums over their rows."""
