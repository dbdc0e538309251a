# SPDX-License-Identifier: Apache-2.0
"""docs/sites/pod.md: a real API server takes its manifests and commands."""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from kube_api import Api
from simyard.api.providers.pod import PodProvider
from simyard.manifests import install
from simyard_dev.controlplane import ControlPlane
from simyard_sites.pod.reading import CANNOT_START, DISRUPTIONS

pytestmark = pytest.mark.xdist_group("pod")

DOCUMENT = (Path(__file__).parents[4] / "docs/sites/pod.md").read_text()
BLOCK = re.compile(r"^```(yaml|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    found = [text for kind, text in BLOCK.findall(DOCUMENT) if kind == language]
    assert found
    return found


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane) -> ControlPlane:
    Api(control_plane.kubeconfig).install(install.build_objects())
    return control_plane


def test_the_manifests_are_taken(installed: ControlPlane) -> None:
    for block in blocks("yaml"):
        items = {"apiVersion": "v1", "kind": "List", "items": list(yaml.safe_load_all(block))}
        installed.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename=-", stdin=json.dumps(items))


def test_the_commands_work(installed: ControlPlane) -> None:
    for block in blocks("sh"):
        command, *arguments = shlex.split(block.replace("\\\n", " "))
        assert command == "kubectl"
        installed.kubectl(*arguments, "--dry-run=server")


def test_every_option_and_every_reason_of_ours_is_explained() -> None:
    options = {field.alias or name for name, field in PodProvider.model_fields.items()}
    reasons = {*DISRUPTIONS.values(), "OOMKilled", "Completed", *(CANNOT_START & {"ImagePullBackOff"})}
    assert not [name for name in options | reasons if f"`{name}`" not in DOCUMENT]
