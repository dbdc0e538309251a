# SPDX-License-Identifier: Apache-2.0
"""The optimiser in the chart."""

from __future__ import annotations

import pytest
from helm_release import CHART, OPTIMISER, Helm, container_of, of_kind

pytestmark = pytest.mark.xdist_group("chart")


def test_the_optimiser_has_its_own_image_account_and_the_file_store(helm: Helm) -> None:
    rendered = helm.render(*OPTIMISER, "optimiser.image=registry.example.org/simyard-optimiser:1")
    pod = of_kind(rendered, "Deployment")["simyard-optimiser"]["spec"]["template"]["spec"]
    container = container_of(rendered, "optimiser")
    assert pod["serviceAccountName"] == "simyard-optimiser"
    assert container["image"] == "registry.example.org/simyard-optimiser:1"
    assert "--files-directory=/etc/simyard/files" in container["args"]
    assert {"name": "files", "mountPath": "/etc/simyard/files", "readOnly": True} in container["volumeMounts"]
    helm.dry_run([item for item in rendered if item["kind"] != "Pod"])  # its account is missing
    assert "simyard-optimiser" not in of_kind(helm.render(), "ServiceAccount")


def test_an_optimiser_without_a_file_store_is_refused(helm: Helm) -> None:
    done = helm.run("template", "simyard", str(CHART), "--set=optimiser.enabled=true")
    assert done.returncode != 0
    assert "studies need a file store: set files.mode" in done.stderr
