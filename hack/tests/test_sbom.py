# SPDX-License-Identifier: Apache-2.0
"""The bill of materials of an environment, as a CycloneDX document."""

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import sbom


def test_it_names_every_distribution_once_with_its_version(tmp_path: Path) -> None:
    file = tmp_path / "sbom.json"
    subprocess.run([sys.executable, sbom.__file__, str(file), "--version", "1.2.3"], check=True)
    document = json.loads(file.read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["component"]["version"] == "1.2.3"
    references = [item["bom-ref"] for item in document["components"]]
    assert len(references) == len(set(references))
    assert f"pkg:pypi/aiohttp@{version('aiohttp')}" in references
    assert all(re.fullmatch(r"pkg:(pypi|deb/debian)/[^ @]+@[^ @]+", reference) for reference in references)
