# SPDX-License-Identifier: Apache-2.0
"""`certificates.mode=certManager` with cert-manager's own controllers."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from helm_release import NAMESPACE, Helm, of_kind

from kube_api import wait_until
from release import API_SERVICE, Release

KINDS = ("Issuer", "Certificate")
WORKERS_ADDRESS = "10.1.2.3"
WITH_ALL_CERTIFICATES = (
    "certificates.mode=certManager",
    "broker.mode=embedded",
    f"broker.workers.host={WORKERS_ADDRESS}",
    "files.mode=embedded",
)
APISERVER, AUTHORITY = "simyard-apiserver", "simyard-ca"


@pytest.fixture(scope="module")
def certificates(helm: Helm, release: Release) -> list[str]:
    """Return the names of all Certificates that the chart can render, once they are ready."""
    made = [item for item in helm.render(*WITH_ALL_CERTIFICATES) if item["kind"] in KINDS]
    release.api.install(made)
    names = list(of_kind(made, "Certificate"))
    release.kubectl("wait", "--for=condition=Ready", "--timeout=240s", "certificate", *names)
    return names


@pytest.fixture(scope="module")
def served(release: Release, certificates: list[str]) -> Iterator[Release]:
    """Provide the release with an apiserver that kube-apiserver reaches."""
    release.apiserver.start()
    release.kubectl("wait", "--for=condition=Available", "--timeout=240s", "apiservice", API_SERVICE)
    yield release
    release.apiserver.stop()


@pytest.mark.parametrize(
    ("part", "host"),
    [
        ("apiserver", f"simyard-apiserver.{NAMESPACE}.svc"),
        ("frontend", f"occi-plant-calculix.{NAMESPACE}.svc"),
        ("broker", f"simyard-broker.{NAMESPACE}.svc"),
        ("broker", WORKERS_ADDRESS),
        ("files", f"simyard-files.{NAMESPACE}.svc"),
    ],
)
def test_each_secret_serves_the_host_of_its_service(
    release: Release, certificates: list[str], part: str, host: str, tmp_path: Path
) -> None:
    assert f"simyard-{part}" in certificates
    files = release.read_secret(f"simyard-{part}-tls")
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    client = ssl.create_default_context(cafile=tmp_path / "ca.crt")
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    _shake_hands(server, client, host)
    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands(server, client, "other.example.org")


def test_the_injected_authority_makes_the_api_available(served: Release) -> None:
    assert served.read_ca_bundle().encode() == served.read_secret("simyard-apiserver-tls")["ca.crt"]
    _check_api(served)


def _renew(release: Release, name: str) -> None:
    """Do what `cmctl renew` does."""
    issuing = {
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "message": "Certificate re-issuance manually triggered",
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    change = json.dumps([{"op": "add", "path": "/status/conditions/-", "value": issuing}])
    release.kubectl("patch", "certificate", name, "--subresource=status", "--type=json", f"--patch={change}")


def _delete_secret(release: Release, name: str) -> None:
    release.kubectl("delete", "secret", f"{name}-tls")


@pytest.mark.parametrize("replace", [_renew, _delete_secret])
def test_the_running_apiserver_takes_up_a_new_certificate(
    served: Release, replace: Callable[[Release, str], None]
) -> None:
    process, before = served.apiserver.process.identity, served.verify_apiserver(served.read_ca_bundle())
    _take_up(served, replace)
    assert served.verify_apiserver(served.read_ca_bundle()) != before
    _check_api(served)
    assert served.apiserver.process.identity == process


def test_clients_that_trust_the_old_authority_trust_its_successor(served: Release) -> None:
    old, serial = served.read_ca_bundle(), served.read_serial(AUTHORITY)
    _renew(served, AUTHORITY)
    wait_until(lambda: served.read_serial(AUTHORITY) != serial)
    _take_up(served, _renew)
    wait_until(lambda: served.read_ca_bundle() != old)
    assert served.verify_apiserver(old) == served.verify_apiserver(served.read_ca_bundle())
    _check_api(served)


def _take_up(release: Release, replace: Callable[[Release, str], None]) -> None:
    """Replace the certificate of the apiserver, and wait until the apiserver serves the new one."""
    secret = "simyard-apiserver-tls"
    before = release.read_serial(secret)
    replace(release, APISERVER)
    wait_until(lambda: _read_serial(release, secret) not in (None, before))
    release.apiserver.mount()
    new = release.read_serial(secret)
    wait_until(lambda: release.verify_apiserver(release.read_ca_bundle()) == new)


def _read_serial(release: Release, secret: str) -> int | None:
    """Return the serial number of the certificate in a Secret; None while the Secret is missing."""
    found = release.kubectl("get", "secret", secret, "--ignore-not-found", "-o", "name")
    return release.read_serial(secret) if found else None


def _check_api(release: Release) -> None:
    """Check that kube-apiserver reaches the apiserver."""
    path = f"/apis/{'/'.join(reversed(API_SERVICE.split('.', 1)))}"
    assert json.loads(release.kubectl("get", "--raw", path))["kind"] == "APIResourceList"
    release.kubectl("wait", "--for=condition=Available", "--timeout=240s", "apiservice", API_SERVICE)


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """Make a TLS handshake in memory.

    Raises:
        ssl.SSLCertVerificationError: the client does not accept the certificate for the host.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    waiting = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while waiting:
        for side in tuple(waiting):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
                waiting.remove(side)
