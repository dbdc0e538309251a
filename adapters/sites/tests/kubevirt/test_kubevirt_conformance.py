# SPDX-License-Identifier: Apache-2.0
"""KubeVirt does what every site must do."""

import pytest

from simyard_sites.conformance.suite import Conformance


@pytest.mark.xdist_group("kubevirt")
class TestKubevirt(Conformance):
    """Against a real API server with KubeVirt's own definitions; its controllers are simulated."""
