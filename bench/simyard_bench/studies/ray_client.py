# SPDX-License-Identifier: Apache-2.0
"""Run tasks that do nothing at a local cluster of Ray: ``ray_client.py WORKERS TASKS`` (see ``peers.py``).

Ray runs a process for each worker. A machine has no memory for a thousand, so there are as many as it has cores.
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
    import ray

    workers, tasks = min(int(sys.argv[1]), len(os.sched_getaffinity(0))), int(sys.argv[2])
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    task = ray.remote(run)
    ray.get([task.remote(x) for x in range(1000)])
    print(json.dumps({"workers": workers, "version": ray.__version__}), flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    results = ray.get([task.remote(x) for x in range(tasks)])
    seconds = time.monotonic() - began
    assert results == list(range(tasks))
    print(json.dumps({"seconds": seconds}), flush=True)
    sys.stdin.readline()
    ray.shutdown()


if __name__ == "__main__":
    main()
