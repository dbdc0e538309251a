# SPDX-License-Identifier: Apache-2.0
"""What docs/sites/opennebula.md shows can be used as it stands."""

import re
from pathlib import Path
from typing import Any

import yaml

from simyard.api.cloud_site import CloudSite
from simyard.api.providers.open_nebula import OpenNebulaProvider
from simyard_sites.base import SiteConfig
from simyard_sites.opennebula.requests import SECRETS
from simyard_sites.opennebula.settings import Settings

TEXT = (Path(__file__).parents[4] / "docs" / "sites" / "opennebula.md").read_text()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(kind: str, begins: str) -> str:
    return next(body for found, body in BLOCK.findall(TEXT) if found == kind and body.startswith(begins))


async def test_the_manifest_makes_a_site_that_finds_the_template_of_the_document(yard: Any) -> None:
    secret, manifest = yaml.safe_load_all(blocks("yaml", "apiVersion"))
    provider = CloudSite.model_validate(manifest).spec.provider
    assert provider.get_member()[0] == "openNebula"
    settings = Settings.from_config(SiteConfig("one", provider.get_member()[1].to_json(), secret["stringData"]))
    assert (settings.template_owner, settings.token_seconds) == ("oneadmin", 3600)
    cloud = yard.oned.cloud
    cloud.add_image("debian-simyard")
    cloud.add_network("simulation")
    cloud.add_template("simyard-worker", blocks("", "NAME="))
    keys = ("template", "templateOwner", "networks", "loginTokenSeconds")
    site = yard.site(**{key: manifest["spec"]["provider"]["openNebula"][key] for key in keys})
    await site.probe()
    [machine] = await yard.create(site, "a")
    assert yard.vm(machine).template.vectors("NIC")[0]["NETWORK"] == "simulation"


def test_every_field_is_described_and_read() -> None:
    fields = {field.alias for field in OpenNebulaProvider.model_fields.values()}
    code = (Path(__file__).parents[2] / "simyard_sites" / "opennebula" / "settings.py").read_text()
    for name in fields:
        assert f"`{name}`" in TEXT, f"{name} is not described"
        assert name == "credentialsSecretRef" or f'"{name}"' in code, f"{name} is not read"


def test_the_secrets_to_be_encrypted_are_those_that_are_sent() -> None:
    assert set(re.findall(r'VM_ENCRYPTED_ATTR = "CONTEXT/(\w+)"', TEXT)) == set(SECRETS)
