# SPDX-License-Identifier: Apache-2.0
"""Assignment of the chunks of a study to workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MAX_PER_WORKER = 2
"""Maximum number of chunks of one study that a worker has at the same time: one runs, and the next one waits for it."""


def choose_workers(
    workers: Sequence[str],
    own: Mapping[str, int],
    others: Mapping[str, int],
    parallelism: int | None,
    chunks: int,
    *,
    per_worker: int = MAX_PER_WORKER,
) -> list[str]:
    """Return the uids of the workers that get the next chunks of a study, one chunk for each entry.

    Workers with the fewest chunks come first, so that no worker waits while another one has two.

    Args:
        workers: uids of workers that accept tasks.
        own: number of chunks of this study by worker, also for workers that accept nothing now.
        others: number of other chunks and actions by worker.
        parallelism: maximum number of workers with chunks of this study.
        chunks: number of chunks that can be assigned.
        per_worker: maximum number of chunks of this study that a worker has at the same time.
    """
    allowed = len(workers) if parallelism is None else parallelism - sum(1 for count in own.values() if count)
    chosen: list[str] = []
    fresh = [uid for uid in workers if not own.get(uid)]
    fresh.sort(key=lambda uid: others.get(uid, 0))
    fresh = fresh[: max(0, allowed)]
    load = {uid: own.get(uid, 0) for uid in (*fresh, *(uid for uid in workers if own.get(uid)))}
    for level in range(per_worker):
        chosen += [uid for uid, count in load.items() if count <= level]
        if len(chosen) >= chunks:
            break
    return chosen[:chunks]
