# SPDX-License-Identifier: Apache-2.0
"""The manifests of docs/sites/kubevirt.md are what an API server takes, and grant what the site asks for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from simyard_dev.controlplane import ControlPlane
from simyard_sites.kubernetes.rights import DISKS, INSTANCETYPES, MACHINES, VIRT_VERSION, Rule

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "sites" / "kubevirt.md"
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MANIFESTS: list[dict[str, Any]] = [
    manifest for block in BLOCK.findall(DOCUMENT.read_text()) for manifest in yaml.safe_load_all(block)
]


def test_the_role_has_the_rights_that_the_site_asks_for_and_no_other() -> None:
    roles = {item["metadata"]["name"]: item["rules"] for item in MANIFESTS if item["kind"] == "ClusterRole"}
    assert roles == {
        "simyard-site-kubevirt": rules_of(*MACHINES, *DISKS, *INSTANCETYPES),
        "simyard-site-kubevirt-version": rules_of(VIRT_VERSION),
    }


def rules_of(*rules: Rule) -> list[dict[str, list[str]]]:
    """Return the rules as a ClusterRole has them."""
    return [{"apiGroups": [rule.group], "resources": [rule.resource], "verbs": list(rule.verbs)} for rule in rules]


@pytest.mark.xdist_group("kubevirt")
def test_the_api_server_takes_the_manifests(kubevirt_control_plane: ControlPlane) -> None:
    for manifest in MANIFESTS:
        if manifest["kind"] == "CloudSite":
            continue  # operator/tests/manifests has their definition
        manifest["metadata"].update({"namespace": "default"} if "namespace" in manifest["metadata"] else {})
        arguments = ("apply", "--dry-run=server", "--validate=strict", "--filename=-")
        kubevirt_control_plane.kubectl(*arguments, stdin=yaml.safe_dump(manifest))
