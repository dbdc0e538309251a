# SPDX-License-Identifier: Apache-2.0
"""Install the definitions of other projects' kinds that the chart uses, read from their Go modules.

A real API server checks the objects of the chart against the definitions; no controller acts on these objects.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from simyard_dev import tools
from simyard_dev.controlplane import ControlPlane

READY_SECONDS = 240
_DEFINITIONS = tools.GoModule(name="definitions", source="", packages={})
_KINDS = (
    (tools.CERT_MANAGER, "deploy/crds/cert-manager.io_", ("certificates", "issuers")),
    (
        replace(_DEFINITIONS, source="github.com/prometheus-operator/prometheus-operator"),
        "example/prometheus-operator-crd/monitoring.coreos.com_",
        ("podmonitors", "prometheusrules"),
    ),
    (
        replace(_DEFINITIONS, source="github.com/rabbitmq/cluster-operator/v2"),
        "config/crd/bases/rabbitmq.com_",
        ("rabbitmqclusters",),
    ),
    (
        replace(_DEFINITIONS, source="sigs.k8s.io/gateway-api"),
        "config/crd/standard/gateway.networking.k8s.io_",
        ("backendtlspolicies", "gateways", "httproutes"),
    ),
)
"""For each Go module: the path prefix of its definitions, and the kinds that the chart uses."""


def list_files() -> list[Path]:
    """Return the files of the definitions.

    Raises:
        SetupError: Go is missing, a module cannot be downloaded, or it does not match go.sum.
    """
    found = []
    for module, prefix, kinds in _KINDS:
        directory = tools.download(module)
        found += [directory / f"{prefix}{kind}.yaml" for kind in kinds]
    return found


def install(control_plane: ControlPlane) -> None:
    """Apply the definitions to a control plane and wait until they are established.

    Raises:
        SetupError: the control plane refused a definition.
    """
    named = [f"--filename={file}" for file in list_files()]
    control_plane.kubectl("apply", "--server-side", *named)
    control_plane.kubectl("wait", "--for=condition=Established", f"--timeout={READY_SECONDS}s", *named)
