# SPDX-License-Identifier: Apache-2.0
"""Rules that keep the identity of a CloudSite: after a change the operator could not find the running machines."""

from __future__ import annotations

from simyard.api.base import make_immutable_rule

IDENTITY = "is immutable, because machines would be left behind: create a new CloudSite, then delete this one"
IN_A_CLUSTER = (
    make_immutable_rule("namespace", "", IDENTITY),
    make_immutable_rule("kubeconfigSecretRef", ".name", IDENTITY),
)
"""Rules for sites whose machines are Kubernetes objects."""
