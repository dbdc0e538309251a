# SPDX-License-Identifier: Apache-2.0
"""Pods do what every site must do."""

import pytest

from simyard_sites.conformance.suite import Conformance


@pytest.mark.xdist_group("pod")
class TestPod(Conformance):
    """Against a real API server and a real scheduler; kwok plays the kubelets."""
