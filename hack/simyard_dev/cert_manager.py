# SPDX-License-Identifier: Apache-2.0
"""Run cert-manager's controllers and its CA injector beside a development control plane.

Real: the definitions, the controllers of Issuers (CA and SelfSigned), Certificates and CertificateRequests, and the
injector, all from the Go module of the release. Absent: the validating webhook, and the rights of cert-manager's own
account, because the process is an administrator.
"""

from __future__ import annotations

from pathlib import Path

from simyard_dev import tools
from simyard_dev.controlplane import ControlPlane
from simyard_dev.processes import Process
from simyard_dev.progress import step

DEFINITIONS = Path("deploy", "crds")
READY_SECONDS = 240


class CertManager:
    """The process of cert-manager in a directory, for a control plane that runs already."""

    def __init__(self, directory: Path, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane
        self._process = Process(directory, "cert-manager")

    def start(self) -> None:
        """Install the definitions, and start the process unless it runs.

        Raises:
            SetupError: the program cannot be built, or the control plane refused a definition.
        """
        program = tools.ensure(tools.CERT_MANAGER.packages)["cert-manager"]
        with step(f"starting cert-manager {tools.CERT_MANAGER.version}"):
            definitions = sorted((tools.download(tools.CERT_MANAGER) / DEFINITIONS).glob("*.yaml"))
            named = [f"--filename={file}" for file in definitions]
            self._control_plane.kubectl("apply", "--server-side", *named)
            self._control_plane.kubectl("wait", "--for=condition=Established", f"--timeout={READY_SECONDS}s", *named)
            self._process.start([program, f"--kubeconfig={self._control_plane.kubeconfig}"])

    def stop(self) -> None:
        """Stop the process."""
        self._process.stop(0)
