# SPDX-License-Identifier: Apache-2.0
"""The CloudSites in docs/sites/*.md are what the API server takes, field by field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from kube_api import Api
from simyard.api.base import Json

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "sites"
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SITES = [
    pytest.param(manifest, id=f"{document.stem}-{manifest['metadata']['name']}")
    for document in sorted(FOLDER.glob("*.md"))
    for block in BLOCK.findall(document.read_text())
    for manifest in yaml.safe_load_all(block)
    if manifest.get("kind") == "CloudSite"
]


@pytest.mark.parametrize("site", SITES)
def test_the_api_server_takes_it(api: Api, site: Json) -> None:
    path = "/apis/simyard.dev/v1alpha1/cloudsites?dryRun=All&fieldValidation=Strict"
    answer = api.request("POST", path, site)
    assert answer.accepted, answer.message
