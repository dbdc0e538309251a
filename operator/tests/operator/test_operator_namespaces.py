# SPDX-License-Identifier: Apache-2.0
"""An operator that watches one namespace has rights there alone, and works there alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from operator_stack import Operator, Scene, Stack, condition, scene, wait_until

from simyard.api import names
from simyard.manifests import install

pytestmark = pytest.mark.xdist_group("operator")
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def scenes(stack: Stack) -> Iterator[tuple[Scene, Scene]]:
    """A watched namespace, where the account has its role, and another one, where it has none."""
    usual = stack.operator()
    if usual.process.identity is not None:
        usual.stop()
    with scene(stack) as watched, scene(stack) as other:
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": names.OPERATOR, "namespace": watched.namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": names.OPERATOR},
            "subjects": [{"kind": "ServiceAccount", "name": names.OPERATOR, "namespace": names.SYSTEM_NAMESPACE}],
        }
        assert stack.api.create(binding).accepted
        assert stack.api.request("DELETE", f"{RBAC}/clusterrolebindings/{names.OPERATOR}").accepted
        watching = Operator(stack, "watching", {"watch_namespace": watched.namespace})
        try:
            watching.start()
            yield watched, other
        finally:
            watching.stop()
            stack.api.install(install.build_access(names.SYSTEM_NAMESPACE))
            usual.start()  # it clears away what both scenes have


def test_an_operator_of_one_namespace_needs_no_right_in_another(scenes: tuple[Scene, Scene], stack: Stack) -> None:
    watched, other = scenes
    for world in scenes:
        world.make_pool(1)
    watched.available(1)
    wait_until(lambda: condition(stack.get(names.CLOUD_SITES, "", watched.site) or {}, "Ready")["status"] == "True")
    stack.delete(names.WORKER_POOLS, watched.namespace, "pool")
    wait_until(lambda: stack.get(names.WORKER_POOLS, watched.namespace, "pool") is None)
    assert watched.machines() == []
    assert other.workers() == []
    pool = other.pool()
    assert not pool.get("status")
    assert "finalizers" not in pool["metadata"]


def test_events_about_sites_are_written_although_their_namespace_is_not_watched(
    scenes: tuple[Scene, Scene], stack: Stack
) -> None:
    watched, _ = scenes

    def told() -> bool:
        items = stack.api.request("GET", "/api/v1/namespaces/default/events").body["items"]
        return any(item["involvedObject"].get("name") == watched.site for item in items)

    wait_until(told)
