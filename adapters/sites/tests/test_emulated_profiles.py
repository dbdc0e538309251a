# SPDX-License-Identifier: Apache-2.0
"""The profiles reproduce what was published, and the documentation says what they are."""

import statistics
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml

from simyard.api.cloud_site import CloudSite
from simyard.api.providers.emulated import EmulatedProfile, EmulatedProvider
from simyard_dev.providers import complete_emulated, make_emulated_settings
from simyard_sites.base import InvalidSpecError
from simyard_sites.emulated.bound import bound
from simyard_sites.emulated.profiles import PROFILES, Profile
from simyard_sites.emulated.settings import GuestKind, Settings

WIDER = {"intervalMilliseconds": 1000, "machinesPerInterval": 0, "machinesPerHostAndInterval": 0}
# What, profile, what differs from it, machines, which number, as published (seconds, or machines per second).
FIGURES: list[tuple[str, str, dict[str, Any], int, str, float]] = [
    ("T_boot of 1 worker", "cloud4e-2014", {}, 1, "last", 115),
    ("T_boot of 40 workers", "cloud4e-2014", {}, 40, "last", 128),
    ("512 machines, mean", "opennebula-2015-default", {}, 512, "mean", 615),
    ("512 machines, last", "opennebula-2015-default", {}, 512, "last", 22 * 60),
    ("scheduler every 1 s and wider, mean", "opennebula-2015-default", {"scheduler": WIDER}, 512, "mean", 145.6),
    ("scheduler every 1 s and wider, last", "opennebula-2015-default", {"scheduler": WIDER}, 512, "last", 229),
    ("512 machines, mean", "opennebula-2015-tuned", {}, 512, "mean", 53.5),
    ("512 machines, last", "opennebula-2015-tuned", {}, 512, "last", 87.8),
    ("1,000 machines, last", "kubevirt-default", {}, 1000, "last", 22.7 * 60),
    ("1,000 machines per second", "kubevirt-tuned", {}, 1000, "rate", 17),
    ("100 machines, median", "kubevirt-tuned", {}, 100, "median", 18),
]
DOCUMENT = (Path(__file__).parents[3] / "docs" / "emulated-clouds.md").read_text()


def modelled(profile: str, differs: dict[str, Any], machines: int, number: str) -> float:
    found = bound(complete_emulated(profile=profile, **differs), machines)
    times = found.running_seconds
    return {
        "mean": found.mean_seconds,
        "last": found.last_seconds,
        "median": statistics.median(times),
        "rate": (machines - 1) / (times[-1] - times[0]) if machines > 1 else 0.0,
    }[number]


@pytest.mark.parametrize(("what", "profile", "differs", "machines", "number", "published"), FIGURES)
def test_the_profile_alone_reproduces_the_published_figure_within_10_percent_as_the_document_says(
    what: str, profile: str, differs: dict[str, Any], machines: int, number: str, published: float
) -> None:
    model = modelled(profile, differs, machines, number)
    assert abs(model / published - 1) <= 0.1
    row = f"| `{profile}` | {what} | {published:g} | {model:.1f} | {(model / published - 1) * 100:+.1f} % |"
    assert row in DOCUMENT, f"docs/emulated-clouds.md must have the row {row}"


def test_the_document_has_every_number_of_every_profile() -> None:
    rows = {}
    for line in DOCUMENT.splitlines():
        cells = [cell.strip(" `") for cell in line.split("|")[1:-1]]
        if len(cells) == len(Profile) + 1:
            rows[cells[0]] = cells[1:]
    settings = [name for name in rows if "." in name or name.endswith("Percent")]
    head = [Profile(name) for name in rows["setting"] if name != "source"]
    documented = {
        profile: {
            name: int(rows[name][column].replace(",", "")) for name in settings if rows[name][column] not in ("", "0")
        }
        for column, profile in enumerate(head)
    }
    assert documented == {profile: dict(numbers) for profile, numbers in PROFILES.items() if profile in head}
    assert set(head) == set(Profile) - {Profile.INSTANT}


def test_the_example_in_the_document_is_a_site_with_the_version_that_it_says() -> None:
    _, _, rest = DOCUMENT.partition("```yaml\n")
    site = CloudSite.model_validate(yaml.safe_load(rest.partition("```")[0]))
    _, member = site.spec.provider.get_member()
    title = Settings.from_provider(member.to_json()).title
    assert title == "opennebula-2015-default (adjusted) at 10 % of its time"
    assert f"{title}`" in DOCUMENT


def test_the_api_offers_the_profiles_and_exactly_the_settings_that_are_read() -> None:
    assert set(typing.get_args(EmulatedProfile)) == set(Profile)
    schema = EmulatedProvider.model_json_schema(by_alias=True)
    offered = {}
    for name, member in schema["properties"].items():
        reference = next((option["$ref"] for option in member.get("anyOf", []) if "$ref" in option), "")
        if reference:
            group = schema["$defs"][reference.rpartition("/")[2]]["properties"]
            offered |= {f"{name}.{key}": limits(value) for key, value in group.items()}
        elif name not in ("guests", "profile"):
            offered[name] = limits(member)
    for path, (least, most) in offered.items():
        for value, is_good in ((least, True), (most, True), (least - 1, False), (most + 1, False)):
            group, _, key = path.rpartition(".")
            provider: dict[str, Any] = {group: {key: value}} if group else {key: value}
            if is_good:
                assert reads(provider, path) == value
            else:
                with pytest.raises(InvalidSpecError, match=f"emulated.{path}: "):
                    Settings.from_provider(complete_emulated() | provider)
    assert offered.keys() == paths(make_emulated_settings().to_provider()).keys() - {"guests", "profile"}


def limits(member: dict[str, Any]) -> tuple[int, int]:
    number = next((option for option in member.get("anyOf", []) if option.get("type") == "integer"), member)
    return number["minimum"], number["maximum"]


def paths(provider: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in provider.items():
        found |= {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
    return found


def reads(provider: dict[str, Any], path: str) -> Any:
    return paths(Settings.from_provider(complete_emulated() | provider).to_provider())[path]


@pytest.mark.parametrize("profile", Profile)
def test_single_settings_override_those_of_the_profile_and_the_title_says_so(profile: Profile) -> None:
    plain = Settings.from_provider(complete_emulated(profile=profile.value))
    assert plain.title == profile.value
    provider = complete_emulated(profile=profile.value, guests="shared", latencies={"bootMilliseconds": 7})
    changed = Settings.from_provider(provider)
    assert (changed.boot_milliseconds, changed.guests) == (7, GuestKind.SHARED)
    assert changed.title == f"{profile} (adjusted)"
    assert changed.prolog_milliseconds == plain.prolog_milliseconds
    scaled = Settings.from_provider(complete_emulated(profile=profile.value, timeScalePercent=10))
    assert scaled.title == f"{profile} at 10 % of its time"
    for settings in (plain, changed, scaled):
        assert Settings.from_provider(settings.to_provider()) == settings


@pytest.mark.parametrize("profile", sorted(set(Profile) - {Profile.INSTANT}))
def test_the_time_scale_scales_all_of_it(profile: Profile) -> None:
    whole = bound(complete_emulated(profile=profile), 60)
    tenth = bound(complete_emulated(profile=profile, timeScalePercent=10), 60)
    assert tenth.running_seconds == pytest.approx([seconds / 10 for seconds in whole.running_seconds])


def test_a_bound_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="room for 6 machines, not for 7"):
        bound(complete_emulated(hosts={"count": 2, "machinesPerHost": 3}), 7)
    with pytest.raises(ValueError, match="fails"):
        bound(complete_emulated(failurePercent=100), 3)


def test_a_bound_counts_on_a_rate_that_refuses_without_waste() -> None:
    found = bound(complete_emulated(api={"createsPerSecond": 2, "createBurst": 2}), 6)
    assert found.running_seconds == pytest.approx([0, 0, 0.5, 1.0, 1.5, 2.0])
