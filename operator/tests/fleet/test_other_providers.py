# SPDX-License-Identifier: Apache-2.0
"""Providers that are installed beside the platform."""

from pathlib import Path

import pytest

from simyard.api.cloud_site import CloudSite
from simyard.fleet.sites.providers import SetupError, make_provider
from simyard_sites.base import SiteConfig

PROVIDER = """
from simyard_sites.base import InvalidSpecError


class Site:
    def __init__(self, config):
        self.config = config
        if "cloud" not in config.provider["settings"]:
            raise InvalidSpecError("spec.provider.other.settings.cloud: it is missing")
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "somebodys_site.py").write_text(PROVIDER)
    metadata = tmp_path / "somebodys_site-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys-site\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[simyard.sites]\nsomebodys = somebodys_site:Site\n")
    monkeypatch.syspath_prepend(tmp_path)


def site(name: str, **settings: str) -> tuple[CloudSite, SiteConfig]:
    provider = {"other": {"name": name, "settings": settings}}
    made = CloudSite.model_validate({"metadata": {"name": "there", "uid": "uid"}, "spec": {"provider": provider}})
    return made, SiteConfig("there", made.spec.provider.get_member()[1].to_json())


def test_it_is_found_by_its_name_and_gets_its_settings() -> None:
    provider = make_provider(*site("somebodys", cloud="here"))
    assert provider.config.provider == {"name": "somebodys", "settings": {"cloud": "here"}}  # type: ignore[attr-defined]


def test_its_own_check_of_the_settings_is_what_the_condition_says() -> None:
    with pytest.raises(SetupError, match="it is missing") as raised:
        make_provider(*site("somebodys"))
    assert raised.value.reason == "InvalidSpec"


def test_one_that_is_not_installed_is_named() -> None:
    with pytest.raises(SetupError, match="the provider nobodys") as raised:
        make_provider(*site("nobodys"))
    assert raised.value.reason == "ProviderNotInstalled"
