# SPDX-License-Identifier: Apache-2.0
"""Pure decisions without I/O: they compute changes and statuses from desired state, observed state and time."""
