# SPDX-License-Identifier: Apache-2.0
"""WorkerPools: their plans, Workers, drains, licences and takers."""
