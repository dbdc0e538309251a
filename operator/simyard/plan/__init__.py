# SPDX-License-Identifier: Apache-2.0
"""Pure decisions: functions from desired state, observed state and time to changes and a status. No I/O, no clock."""
