"""The definitions of other projects' kinds of which the chart makes objects, read from their Go modules.

A real API server checks our objects against them; nothing acts on these objects.
"""

from __future__ import annotations

from pathlib import Path

from simyard_dev import tools
from simyard_dev.controlplane import ControlPlane

READY_SECONDS = 60
_KINDS = {
    "github.com/cert-manager/cert-manager": ("deploy/crds/cert-manager.io_", ("certificates", "issuers")),
    "github.com/prometheus-operator/prometheus-operator": (
        "example/prometheus-operator-crd/monitoring.coreos.com_",
        ("podmonitors", "prometheusrules"),
    ),
    "github.com/rabbitmq/cluster-operator/v2": ("config/crd/bases/rabbitmq.com_", ("rabbitmqclusters",)),
    "sigs.k8s.io/gateway-api": (
        "config/crd/standard/gateway.networking.k8s.io_",
        ("backendtlspolicies", "gateways", "httproutes"),
    ),
}
"""For each Go module, where its definitions are, and those of which the chart makes objects."""


def files() -> list[Path]:
    """Return the files of the definitions.

    Raises:
        SetupError: Go is missing, a module cannot be had, or it is not what go.sum says.
    """
    found = []
    for source, (prefix, kinds) in _KINDS.items():
        directory = tools.download(tools.GoModule(name="definitions", source=source, packages={}))
        found += [directory / f"{prefix}{kind}.yaml" for kind in kinds]
    return found


def install(control_plane: ControlPlane) -> None:
    """Give a control plane the definitions, and wait until it has established them.

    Raises:
        SetupError: the control plane refuses one.
    """
    named = [f"--filename={file}" for file in files()]
    control_plane.kubectl("apply", "--server-side", *named)
    control_plane.kubectl("wait", "--for=condition=Established", f"--timeout={READY_SECONDS}s", *named)
