# SPDX-License-Identifier: Apache-2.0
"""The definitions of KubeVirt come from the pinned module alone."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from simyard_dev import kubevirt
from simyard_dev.errors import SetupError
from simyard_dev.tools import GoModule


def test_the_release_that_is_pinned_defines_machines_and_instance_types() -> None:
    release = kubevirt.release()
    assert release.version == kubevirt.MODULE.version
    kinds = {definition["spec"]["names"]["kind"] for definition in release.definitions}
    assert {"KubeVirt", "VirtualMachineInstance", "VirtualMachineClusterInstancetype"} <= kinds
    [machine] = [item for item in release.definitions if item["spec"]["names"]["kind"] == "VirtualMachineInstance"]
    schema = machine["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    assert "evictionStrategy" in schema["spec"]["properties"]
    assert "evacuationNodeName" in schema["status"]["properties"]
    assert release.instancetypes
    assert release.preferences


def test_a_module_that_go_sum_does_not_vouch_for_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Elsewhere(GoModule):
        @property
        def directory(self) -> Path:
            return tmp_path

    pinned = kubevirt.MODULE
    (tmp_path / "go.mod").write_text((pinned.directory / "go.mod").read_text())
    wrong = (pinned.directory / "go.sum").read_text().replace("h1:ea", "h1:AA")
    (tmp_path / "go.sum").write_text(wrong)
    monkeypatch.setattr(kubevirt, "MODULE", Elsewhere(pinned.name, pinned.source, {}))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kubevirt.release.cache_clear()
    try:
        with pytest.raises(SetupError, match=r"kubevirt\.io/kubevirt"):
            kubevirt.release()
    finally:
        kubevirt.release.cache_clear()
