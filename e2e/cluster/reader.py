# SPDX-License-Identifier: Apache-2.0
"""Run the commands of a guide on the cluster of the tests, as a reader would."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import environment
from cluster import Cluster

SECONDS = 600


@dataclass(frozen=True)
class Reader:
    """A reader; ``folder`` looks like the repository and contains the reader's own ``values.yaml``."""

    cluster: Cluster
    folder: Path

    @classmethod
    def at(cls, cluster: Cluster, folder: Path) -> Reader:
        """Return a reader who works in this empty folder."""
        for name in ("charts", "crds", "examples"):
            shutil.copytree(environment.ROOT / name, folder / name)
        shutil.copy(cluster.values, folder)
        return cls(cluster, folder)

    def does(self, commands: str) -> str:
        """Run commands in one shell with this cluster's images and return the output; they must succeed."""
        done = subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", commands.replace("calculix-beam:dev", self.cluster.ccx_image)],
            cwd=self.folder,
            env=environment.variables(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout
