# SPDX-License-Identifier: Apache-2.0
"""ServiceActions: assignment, dispatch, results and retention."""
