# SPDX-License-Identifier: Apache-2.0
"""The Secret of the file store, as a platform team or an ObjectBucketClaim describes it."""

from pathlib import Path

import pytest

from simyard.files.access import StoreAccess

KEYS = {"bucket": "simyard", "accessKey": "key", "secretKey": "very secret"}


def test_a_secret_is_read_from_its_mount(tmp_path: Path) -> None:
    for name, value in {**KEYS, "endpoint": "https://s3.example.com/", "encryption": "Required"}.items():
        (tmp_path / name).write_text(f"{value}\n")
    access = StoreAccess.from_directory(tmp_path)
    assert (access.endpoint, access.bucket, access.encryption_required) == ("https://s3.example.com", "simyard", True)
    assert "very secret" not in repr(access)


@pytest.mark.parametrize(
    ("host", "port", "more", "endpoint"),
    [
        ("rook-ceph-rgw.rook.svc", "80", {}, "http://rook-ceph-rgw.rook.svc:80"),
        ("rook-ceph-rgw.rook.svc", "443", {}, "https://rook-ceph-rgw.rook.svc:443"),
        ("rook-ceph-rgw.rook.svc", "9000", {"ca.crt": "PEM"}, "https://rook-ceph-rgw.rook.svc:9000"),
        ("s3.example.com", "0", {}, "http://s3.example.com"),
    ],
)
def test_an_object_bucket_claim_has_host_and_port(host: str, port: str, more: dict[str, str], endpoint: str) -> None:
    access = StoreAccess.from_values({**KEYS, "host": host, "port": port, **more})
    assert (access.endpoint, access.url_of("uid/in/x")) == (endpoint, f"{endpoint}/simyard/uid/in/x")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"secretKey": ""}, "has no secretKey"),
        ({"endpoint": "s3.example.com"}, "endpoint must be"),
        ({"endpoint": "https://s3.example.com/bucket"}, "endpoint must be"),
        ({"encryption": "Yes"}, "encryption must be"),
    ],
)
def test_a_wrong_key_is_named(change: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        StoreAccess.from_values({**KEYS, "endpoint": "http://s3", **change})


def test_a_missing_mount_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        StoreAccess.from_directory(tmp_path / "none")
