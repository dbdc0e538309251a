# SPDX-License-Identifier: Apache-2.0
"""Run tasks that do nothing at a local cluster of Dask: ``dask_client.py WORKERS TASKS`` (see ``peers.py``).

The cluster has a process for each core, which share the threads. The scheduler is in the process of the client.
"""

from __future__ import annotations

import json
import os
import sys
import time


def run(x: float) -> float:
    """Return the parameter."""
    return x


def main() -> None:
    """Start a cluster, and run the tasks on request."""
    import distributed

    workers, tasks = int(sys.argv[1]), int(sys.argv[2])
    processes = len(os.sched_getaffinity(0))
    with (
        distributed.LocalCluster(
            n_workers=processes, threads_per_worker=max(1, workers // processes), dashboard_address=None, memory_limit=0
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.gather(client.map(run, range(1000), pure=False))
        print(json.dumps({"workers": workers, "version": distributed.__version__}), flush=True)
        sys.stdin.readline()
        began = time.monotonic()
        results = client.gather(client.map(run, range(tasks), pure=False))
        seconds = time.monotonic() - began
        assert results == list(range(tasks))
        print(json.dumps({"seconds": seconds}), flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
