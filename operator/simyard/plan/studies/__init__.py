# SPDX-License-Identifier: Apache-2.0
"""Pure decisions of studies: points of designs, chunks, and the status."""
