# SPDX-License-Identifier: Apache-2.0
"""Assignment of the chunks of a study to workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MAX_PER_WORKER = 2
"""Maximum number of chunks of one study that a worker has at the same time: one runs, and the next one waits for it."""


def choose_workers(
    own: Mapping[str, int], fresh: Sequence[str], chunks: int, *, per_worker: int = MAX_PER_WORKER
) -> list[str]:
    """Return the uids of the workers that get the next chunks of a study, one chunk for each entry.

    Workers with the fewest chunks come first, so that no worker waits while another one has two.

    Args:
        own: number of chunks of this study by worker, for workers that have some and accept more.
        fresh: uids of workers that may get their first chunk of this study.
        chunks: number of chunks that can be assigned.
        per_worker: maximum number of chunks of this study that a worker has at the same time.
    """
    chosen: list[str] = []
    load = {**dict.fromkeys(fresh, 0), **own}
    for level in range(per_worker):
        chosen += [uid for uid, count in load.items() if count <= level]
        if len(chosen) >= chunks:
            break
    return chosen[:chunks]
