# SPDX-License-Identifier: Apache-2.0
"""The kopf operator: start and end of the process, and the handlers of WorkerPools and CloudSites, a file for each.

Read :mod:`simyard.controllers.operator` first, then ``worker_pools`` and ``cloud_sites``. kopf owns the process: its
event loop, signals and credentials, the finalizers of pools and sites, and the call of a handler when a pool or site is
to be deleted. The handlers call the reconcilers of the fleet. The reconcilers do not get their objects from kopf, but
from the caches of :mod:`simyard.kube.cache`; docs/architecture.md says why (section "kopf").
"""
