# SPDX-License-Identifier: Apache-2.0
"""The rights in docs/sites/kubevirt.md suffice, also where KubeVirt grants no rights to every account."""

from __future__ import annotations

from pathlib import Path

from virt_stage import Stage

from simyard_sites.base import MachineState, PowerAction
from simyard_sites.kubernetes.resource import Resource

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "sites" / "kubevirt.md"
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
EVERYBODY = "kubevirt.io:default"


def documented(namespace: str) -> str:
    """Return the objects that the page has you apply in the other cluster, for this namespace."""
    blocks = DOCUMENT.read_text().split("```yaml\n")[1:]
    [block] = [text for block in blocks if "kind: ServiceAccount\n" in (text := block.partition("```")[0])]
    return block.replace("machines", namespace)


async def test_the_documented_account_can_do_all_that_the_site_does(there: Stage, tmp_path: Path) -> None:
    granted = await there.client.get(BINDINGS, EVERYBODY)
    await there.client.delete(BINDINGS, EVERYBODY)
    try:
        there.control_plane.kubectl("apply", "--filename=-", stdin=documented(there.namespace))
        kubeconfig = tmp_path / "kubeconfig"
        there.control_plane.write_service_account_kubeconfig(kubeconfig, there.namespace, "simyard")
        site = there.site_of(kubeconfig)
        try:
            assert (await site.probe()).version.startswith("KubeVirt v")
            [machine_id] = await there.create(there.request(), site=site)
            await there.until(machine_id, lambda seen: seen.state is MachineState.RUNNING)
            for action in (PowerAction.SUSPEND, PowerAction.START):
                assert [outcome.error async for outcome in site.act([machine_id], action)] == [None]
                reached = MachineState.SUSPENDED if action is PowerAction.SUSPEND else MachineState.RUNNING
                await there.until(machine_id, lambda seen, reached=reached: seen.state is reached)
            assert [outcome.error async for outcome in site.delete([machine_id])] == [None]
            await there.until_gone(machine_id)
        finally:
            await site.aclose()
    finally:
        kept = {key: granted[key] for key in ("roleRef", "subjects")}
        await there.client.create(BINDINGS, {"metadata": {"name": EVERYBODY}, **kept})
