# SPDX-License-Identifier: Apache-2.0
"""Rules that make the identity of a CloudSite immutable.

After a change of the identity, the operator could not find the site's machines any more.
"""

from __future__ import annotations

from simyard.api.base import make_immutable_rule

IDENTITY = "is immutable, because machines would be left behind: create a new CloudSite, then delete the old one"
IN_A_CLUSTER = (
    make_immutable_rule("namespace", "", IDENTITY),
    make_immutable_rule("kubeconfigSecretRef", ".name", IDENTITY),
)
"""Rules for sites whose machines are Kubernetes objects."""
