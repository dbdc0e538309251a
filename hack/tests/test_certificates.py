# SPDX-License-Identifier: Apache-2.0
import socket
import ssl
import threading
from pathlib import Path

import pytest

from simyard_dev.certificates import CertificateAuthority


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> dict[str, object]:
    """Connect a client to a server and return the client certificate that the server saw."""
    seen: dict[str, object] = {}
    left, right = socket.socketpair()

    def serve() -> None:
        try:
            with server.wrap_socket(left, server_side=True) as connection:
                seen.update(connection.getpeercert() or {})
                connection.sendall(b"x")
        except OSError:
            left.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(right, server_hostname=host) as connection:
            connection.recv(1)
    finally:
        right.close()
        thread.join()
    return seen


def server_context(authority: CertificateAuthority) -> ssl.SSLContext:
    serving = authority.issue_server("server", ["localhost", "127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.files.certificate)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_cert_chain(serving.certificate, serving.key)
    return context


def client_context(authority: CertificateAuthority) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.files.certificate)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_client_trusts_a_serving_certificate_for_its_hosts(tmp_path: Path, host: str) -> None:
    authority = CertificateAuthority(tmp_path, "ca")
    assert handshake(server_context(authority), client_context(authority), host) == {}


def test_a_client_refuses_another_host(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path, "ca")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"example\.org"):
        handshake(server_context(authority), client_context(authority), "example.org")


def test_a_client_refuses_another_authority(tmp_path: Path) -> None:
    server = server_context(CertificateAuthority(tmp_path / "one", "ca"))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client_context(CertificateAuthority(tmp_path / "two", "ca")), "localhost")


def test_a_client_certificate_tells_user_and_groups(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path, "ca")
    user = authority.issue_client("alice", "alice", ["engineers"])
    client = client_context(authority)
    client.load_cert_chain(user.certificate, user.key)
    seen = handshake(server_context(authority), client, "localhost")
    assert seen["subject"] == ((("organizationName", "engineers"),), (("commonName", "alice"),))


def test_an_authority_is_kept_and_its_key_is_private(tmp_path: Path) -> None:
    first = CertificateAuthority(tmp_path, "ca").files.certificate.read_bytes()
    again = CertificateAuthority(tmp_path, "ca").files
    assert again.certificate.read_bytes() == first
    assert again.key.stat().st_mode & 0o777 == 0o600
