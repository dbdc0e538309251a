# SPDX-License-Identifier: Apache-2.0
"""Make certificates for the servers that play a part in tests."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    """A CA with its key and its certificate."""

    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls, name: str) -> Authority:
        """Return a new self-signed CA."""
        key = ec.generate_private_key(ec.SECP256R1())
        basic = x509.BasicConstraints(ca=True, path_length=0)
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        built = _builder(_name(name), _name(name), key.public_key())
        built = built.add_extension(basic, critical=True).add_extension(own, critical=False)
        return cls(key, built.sign(key, hashes.SHA256()))

    @classmethod
    def read(cls, certificate: str, key: str) -> Authority:
        """Return the CA of this certificate and key (PEM): RSA, as Helm makes it, or an elliptic curve."""
        found = serialization.load_pem_private_key(key.encode(), None)
        assert isinstance(found, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)
        return cls(found, x509.load_pem_x509_certificate(certificate.encode()))

    @property
    def pem(self) -> str:
        """Return the certificate as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, *hosts: str) -> tuple[str, str]:
        """Return certificate and key (PEM) of a server with these names."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
        # Python 3.13 refuses certificates without it.
        signer = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer)
        # The encoded name is copied: Go compares its bytes, and these depend on the kind of string.
        built = _builder(_name(hosts[0][:64]), self.certificate.subject, key.public_key())
        built = built.add_extension(names, critical=False).add_extension(by, critical=False)
        certificate = built.sign(self.key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM).decode(), pem(key)


def pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    """Return a private key as PEM, not encrypted."""
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def signing_request(name: str) -> tuple[bytes, str]:
    """Return a signing request (PEM) for a client's certificate, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(_name(name)).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM), pem(key)


def serial_of(certificate: str) -> int:
    """Return the serial number of a certificate (PEM)."""
    return x509.load_pem_x509_certificate(certificate.encode()).serial_number


def hosts_of(certificate: str) -> list[str]:
    """Return the DNS names of a certificate (PEM)."""
    extensions = x509.load_pem_x509_certificate(certificate.encode()).extensions
    return extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + 30 * DAY)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
