# SPDX-License-Identifier: Apache-2.0
"""Pure decisions: functions that compute changes and statuses from desired state, observed state and time."""
