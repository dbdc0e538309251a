# SPDX-License-Identifier: Apache-2.0
"""The kopf operator: the start and the end of the process, and the handlers of WorkerPools and CloudSites.

Read :mod:`simyard.controllers.operator` first, then ``worker_pools`` and ``cloud_sites``. kopf owns the process: its
event loop, signals and credentials, and the finalizers of pools and sites. It calls a handler when a user deletes a
pool or site. The handlers call the reconcilers in :mod:`simyard.fleet`. The reconcilers do not get their objects from
kopf, but from the caches of :mod:`simyard.kube.cache`; docs/architecture.md says why (section "kopf").
"""
