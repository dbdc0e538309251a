# SPDX-License-Identifier: Apache-2.0
"""The right to an action: checked once for a request, and the same for every collection."""

from __future__ import annotations

from typing import cast

import pytest
from frontend_objects import Bench, worker
from occi_memory import START, START_LINE, TAG_LINE, Caller, MemoryBackend, lines

from simyard.api import names
from simyard.frontend.access import Access
from simyard.frontend.backend import Verb
from simyard.occi.standard import APPLICATION_ACTION_SCHEME, COMPUTE_ACTION_SCHEME
from simyard_sites.kubernetes.client import KubeClient


@pytest.mark.parametrize("path", ["/compute/c1", "/compute/", "/tag/"])
async def test_the_right_to_act_is_checked_once_whatever_the_request_is_for(
    memory: MemoryBackend, call: Caller, path: str
) -> None:
    await call("POST", "/-/", TAG_LINE)
    await call("POST", "/tag/", "X-OCCI-Location: /compute/c1")
    memory.asked.clear()
    assert (await call("POST", f"{path}?action=start", lines(START_LINE))).status == 200
    acts = [(asked, action) for _, verb, asked, action in memory.asked if verb is Verb.ACT]
    assert acts == [(path, START)]


@pytest.mark.parametrize(
    "action",
    [
        f"{COMPUTE_ACTION_SCHEME}stop",
        f"{APPLICATION_ACTION_SCHEME}stop",
        "http://cloud4e/beam/action#solve",
        "http://cloud4e/beam/action#start_workers",
        "http://simyard.dev/occi/platform/action#scale",
    ],
)
async def test_an_action_on_a_collection_takes_the_same_permission_wherever_its_members_are(action: str) -> None:
    bench = Bench().fill()
    bench.put(names.WORKERS, worker())
    access = Access(cast(KubeClient, bench.kube), bench.objects.view)
    collections = ("/", "/compute/", "/amqplink/", "/application/", "/component/", "/os_tpl/beam/", "/scalable/")
    assert len({access.find_required_permission(Verb.ACT, path, action) for path in collections}) == 1
