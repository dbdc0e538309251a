# SPDX-License-Identifier: Apache-2.0
"""Create certificate authorities and their certificates, all with ECDSA P-256."""

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from simyard_dev.files import write_whole

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
# The clock of another machine may be behind.
BACKDATED = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, as PEM files."""

    certificate: Path
    key: Path


class CertificateAuthority:
    """A certificate authority in a directory: `NAME.crt` and `NAME.key`, created if they are missing."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self.files = KeyPair(directory / f"{name}.crt", directory / f"{name}.key")
        if not (self.files.certificate.exists() and self.files.key.exists()):
            _make_authority(self.files, name)
        self._certificate = x509.load_pem_x509_certificate(self.files.certificate.read_bytes())
        self._key = _load_key(self.files.key)

    def issue_server(self, name: str, hosts: Iterable[str]) -> KeyPair:
        """Write a serving certificate for DNS names and IP addresses: `name.crt` and `name.key`."""
        alternatives = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._issue(name, subject, ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def issue_client(self, name: str, common_name: str, organizations: Iterable[str] = ()) -> KeyPair:
        """Write a client certificate: `name.crt` and `name.key`.

        Kubernetes uses the common name as the user and each organization as a group.
        """
        groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organizations]
        subject = x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        return self._issue(name, subject, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _issue(
        self,
        name: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None = None,
    ) -> KeyPair:
        files = KeyPair(self._directory / f"{name}.crt", self._directory / f"{name}.key")
        key = ec.generate_private_key(ec.SECP256R1())
        issuer_key_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(subject, self._certificate.subject, key, CERTIFICATE_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(issuer_key_id, critical=False)
        )
        if alternatives:
            builder = builder.add_extension(alternatives, critical=False)
        _write(files, builder.sign(self._key, hashes.SHA256()), key)
        return files


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{path} holds no ECDSA key")
    return key


def write_signing_key(path: Path) -> None:
    """Create a private key for signing tokens, unless the file exists."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, _pem(ec.generate_private_key(ec.SECP256R1())), private=True)


def _make_authority(files: KeyPair, name: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"simyard development {name}")])
    certificate = (
        _builder(subject, subject, key, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(digital_signature=True, signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    files.key.parent.mkdir(parents=True, exist_ok=True)
    _write(files, certificate, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, digital_signature: bool, signs_certificates: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(files: KeyPair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    write_whole(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))
    write_whole(files.key, _pem(key), private=True)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # kube-apiserver derives the public key from the form "EC PRIVATE KEY", but not from PKCS#8.
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
