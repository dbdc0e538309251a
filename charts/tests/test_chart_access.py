# SPDX-License-Identifier: Apache-2.0
"""The accounts, roles and kinds of the chart are those of the code."""

from __future__ import annotations

import json

import pytest
from helm_release import NAMESPACE, OPTIMISER, Helm, Manifest, of_kind

from simyard.manifests import install

pytestmark = pytest.mark.xdist_group("chart")


def test_it_installs_what_the_code_says(helm: Helm) -> None:
    rendered = helm.render(*OPTIMISER)

    def said(manifests: list[Manifest]) -> set[str]:
        ours = ("rules", "spec", "subjects", "roleRef")
        return {
            json.dumps([item["kind"], item["metadata"]["name"], *(item.get(field) for field in ours)], sort_keys=True)
            for item in manifests
        }

    wanted = [item for item in install.build_objects(NAMESPACE) if item["kind"] != "Namespace"]
    assert said(wanted) <= said(rendered)


def test_roles_join_those_of_kubernetes_unless_told_not_to(helm: Helm) -> None:
    joins = "rbac.authorization.k8s.io/aggregate-to-edit"
    assert joins in of_kind(helm.render(), "ClusterRole")["simyard-edit"]["metadata"]["labels"]
    alone = of_kind(helm.render("rbac.aggregate=false"), "ClusterRole")["simyard-edit"]
    assert not any(label.startswith("rbac.authorization") for label in alone["metadata"]["labels"])
