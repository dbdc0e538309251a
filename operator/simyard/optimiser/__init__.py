# SPDX-License-Identifier: Apache-2.0
"""The process ``simyard optimiser``: chooses the points of studies by the results of earlier points."""
