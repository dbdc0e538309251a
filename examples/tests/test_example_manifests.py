# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent
MANIFESTS = sorted(path for path in EXAMPLES.glob("*/*.yaml") if not path.name.endswith(".in.yaml"))


@pytest.fixture(scope="module")
def kinds(control_plane: Any) -> None:
    control_plane.kubectl("apply", "--server-side", "--filename", str(EXAMPLES.parent / "crds"))
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=240s", "crd", "--all")


@pytest.mark.usefixtures("kinds")
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_api_server_accepts_the_manifest(control_plane: Any, manifest: Path) -> None:
    answer = control_plane.kubectl("create", "--dry-run=server", "--validate=strict", "--filename", str(manifest))
    assert answer.strip().endswith("created (server dry run)")
