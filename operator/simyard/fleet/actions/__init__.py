# SPDX-License-Identifier: Apache-2.0
"""ServiceActions: their assignment to workers, their requests and results, and the deletion of finished ones."""
