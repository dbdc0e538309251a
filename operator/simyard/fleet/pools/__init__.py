# SPDX-License-Identifier: Apache-2.0
"""WorkerPools: their passes, Workers, statuses, licences and takers, and the requests to drain."""
