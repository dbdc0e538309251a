# SPDX-License-Identifier: Apache-2.0
"""The rules by which a CloudSite permits the machine of a Worker."""

from __future__ import annotations

import pytest

from simyard.api.cloud_site import CloudSite
from simyard.api.site_permission import find_refusal


def make(**spec: object) -> CloudSite:
    body = {"metadata": {"name": "cloud"}, "spec": {"provider": {"emulated": {}}, **spec}}
    return CloudSite.model_validate(body)


@pytest.mark.parametrize(
    ("site", "consent", "said"),
    [
        (make(), None, ""),
        (make(trust="External"), ["cloud"], ""),
        (make(trust="External"), ["other"], "is External, and spec.placement.consent does not name it"),
        (make(trust="External"), None, "it runs only workers of a WorkerPool"),
        (make(cordoned=True), ["cloud"], "is cordoned"),
        (make(allowedNamespaces={"from": "Selected", "names": ["b"]}), None, "is not open to namespace a"),
        (make(allowedNamespaces={"from": "Selected", "names": ["a"]}), None, ""),
    ],
)
def test_a_site_gives_the_reason_of_a_refusal(site: CloudSite, consent: list[str] | None, said: str) -> None:
    refusal = find_refusal(site, "a", consent)
    assert said in refusal
    assert bool(refusal) == bool(said)
