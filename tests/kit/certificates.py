"""Certificates and authorities for tests."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOST = "dra-extender.test"


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its key, in PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str = "tls") -> tuple[Path, Path]:
        """The files of certificate and key."""
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_bytes(self.certificate)
        key.write_bytes(self.key)
        return certificate, key


class Authority:
    """A certificate authority."""

    def __init__(self, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key, 0.0, 3600.0)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        """The authority's own certificate."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def server(self, *hosts: str, begins: float = -60.0, ends: float = 3600.0) -> Pair:
        """A certificate for names and addresses of a host.

        Args:
            begins: seconds from now.
            ends: seconds from now.
        """
        extension = x509.SubjectAlternativeName([_general(each) for each in hosts or (HOST, "127.0.0.1")])
        names = [x509.NameAttribute(NameOID.COMMON_NAME, "server")]
        return self._issue(names, ExtendedKeyUsageOID.SERVER_AUTH, extension, begins, ends)

    def client(self, user: str, groups: Sequence[str] = (), *, begins: float = -60.0, ends: float = 3600.0) -> Pair:
        """A certificate for a user, as API servers read it.

        Args:
            begins: seconds from now.
            ends: seconds from now.
        """
        names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
        if user:
            names.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        return self._issue(names, ExtendedKeyUsageOID.CLIENT_AUTH, None, begins, ends)

    def _issue(
        self,
        names: list[x509.NameAttribute[Any]],
        usage: x509.ObjectIdentifier,
        extension: x509.ExtensionType | None,
        begins: float = -60.0,
        ends: float = 3600.0,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(x509.Name(names), key, begins, ends)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if extension is not None:
            builder = builder.add_extension(extension, critical=False)
        return Pair(
            builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, begins: float, ends: float
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(seconds=begins))
            .not_valid_after(now + timedelta(seconds=ends))
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def trusting(authority: Authority, client: Pair | None = None, folder: Path | None = None) -> ssl.SSLContext:
    """TLS of a client that trusts an authority, and shows a certificate if there is one (written to the folder)."""
    context = ssl.create_default_context(cadata=authority.pem.decode())
    # Our certificates have few extensions, as those of many clusters; from Python 3.13 on, some would be wanted.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if client is not None and folder is not None:
        context.load_cert_chain(*client.write(folder, "client"))
    return context
