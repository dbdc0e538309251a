# SPDX-License-Identifier: Apache-2.0
"""The Secret of the file store, as a platform team or an ObjectBucketClaim describes it."""

from pathlib import Path

import pytest

from simyard.files.access import StoreAccess
from simyard_dev.certificates import CertificateAuthority

KEYS = {"bucket": "simyard", "accessKey": "key", "secretKey": "very secret"}


def test_a_secret_is_read_from_its_mount(tmp_path: Path) -> None:
    for name, value in {**KEYS, "endpoint": "https://s3.example.com/", "encryption": "Required"}.items():
        (tmp_path / name).write_text(f"{value}\n")
    access = StoreAccess.from_directory(tmp_path)
    assert (access.endpoint, access.bucket, access.encryption_required) == ("https://s3.example.com", "simyard", True)
    assert "very secret" not in repr(access)


@pytest.mark.parametrize(
    ("host", "port", "endpoint"),
    [
        ("rook-ceph-rgw.rook.svc", "80", "http://rook-ceph-rgw.rook.svc:80"),
        ("rook-ceph-rgw.rook.svc", "443", "https://rook-ceph-rgw.rook.svc:443"),
        ("s3.example.com", "0", "http://s3.example.com"),
    ],
)
def test_an_object_bucket_claim_has_host_and_port(host: str, port: str, endpoint: str) -> None:
    access = StoreAccess.from_values({**KEYS, "host": host, "port": port})
    assert (access.endpoint, access.url_of("uid/in/x")) == (endpoint, f"{endpoint}/simyard/uid/in/x")


def test_a_server_with_a_ca_of_its_own_speaks_tls(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path, "ca").files.certificate.read_text()
    access = StoreAccess.from_values({**KEYS, "host": "rook-ceph-rgw.rook.svc", "port": "9000", "ca.crt": authority})
    assert access.endpoint == "https://rook-ceph-rgw.rook.svc:9000"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"secretKey": ""}, "has no secretKey"),
        ({"endpoint": "s3.example.com"}, "endpoint must be"),
        ({"endpoint": "https://s3.example.com/bucket"}, "endpoint must be"),
        ({"endpoint": "http://s3:99999"}, "endpoint must be"),
        ({"ca.crt": "no certificate"}, "ca.crt has no certificate in PEM"),
        ({"encryption": "Yes"}, "encryption must be"),
    ],
)
def test_a_wrong_key_is_named(change: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        StoreAccess.from_values({**KEYS, "endpoint": "http://s3", **change})


def test_a_missing_mount_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        StoreAccess.from_directory(tmp_path / "none")
