"""A certificate authority for development: makes certificates as the servers and clients want them.

It is what two files hold, `ca.pem` and `ca.key`; whoever has the latter can be any server and any
client. It is never put where the system or a browser would trust it. Needs the extra `tls`.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from poe.errors import OptionError, SecurityFileError

VALID_DAYS: Final = 90
"""Of the certificate of a server or client."""
_AUTHORITY_DAYS: Final = 3650
"""Of the authority itself: clients that trust it need nothing new when a certificate is renewed."""
_EARLIER: Final = timedelta(hours=1)
"""So much the clock of another machine may be behind."""
_NO_USES: Final = "content_commitment key_encipherment data_encipherment key_agreement"
_USES: Final = dict.fromkeys([*_NO_USES.split(), "encipher_only", "decipher_only"], False)
_HOST: Final = re.compile(r"(\*\.)?([A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}")


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its private key, both as PEM."""

    certificate: bytes
    key: bytes
    ends: datetime


class Authority:
    """Signs certificates; made anew by `create`, or read by `load`."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, now: datetime) -> Self:
        """Make one with a key of its own."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"Poe development CA {now:%Y-%m-%d}")
        builder = _builder(name, name, key, now, now + timedelta(days=_AUTHORITY_DAYS))
        signs = x509.KeyUsage(digital_signature=False, key_cert_sign=True, crl_sign=True, **_USES)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        builder = builder.add_extension(signs, critical=True)
        return cls(builder.sign(key, SHA256()), key)

    @classmethod
    def load(cls, certificate: Path, key: Path) -> Self:
        """Read one.

        Raises:
            SecurityFileError: a file cannot be read, is none, or the two do not belong together.
        """
        path = certificate
        try:
            found = x509.load_pem_x509_certificate(certificate.read_bytes())
            path = key
            private = load_pem_private_key(key.read_bytes(), None)
        except OSError as error:
            raise SecurityFileError(str(path), None, error.strerror or str(error)) from error
        except (ValueError, TypeError) as error:
            why = "this is not what `poe certificates` has written"
            raise SecurityFileError(str(path), None, why) from error
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise SecurityFileError(str(key), None, "the key of an authority has to be P-256")
        if private.public_key() != found.public_key():
            raise SecurityFileError(str(key), None, f"this is not the key of {certificate}")
        return cls(found, private)

    @property
    def issued(self) -> Issued:
        """Return its own certificate and key."""
        return _issued(self._certificate, self._key)

    def server(self, hosts: Sequence[str], now: datetime) -> Issued:
        """Return the certificate of a server that has these names and addresses.

        Raises:
            OptionError: one is neither.
        """
        return self._sign(
            hosts[0], _alternatives(hosts, "--host"), [ExtendedKeyUsageOID.SERVER_AUTH], now
        )

    def node(self, host: str, now: datetime) -> Issued:
        """Return the certificate of a node of a cluster, which is both a server and a client.

        Raises:
            OptionError: the host is neither a name nor an address.
        """
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._sign(host, _alternatives([host], "--node"), uses, now)

    def client(self, name: str, now: datetime) -> Issued:
        """Return the certificate of a client, whose alternative name is `client_uri`."""
        names = [x509.UniformResourceIdentifier(client_uri(name).removeprefix("URI:"))]
        return self._sign(name, names, [ExtendedKeyUsageOID.CLIENT_AUTH], now)

    def _sign(
        self,
        title: str,
        names: Iterable[x509.GeneralName],
        extended_uses: Sequence[x509.ObjectIdentifier],
        now: datetime,
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        ends = min(now + timedelta(days=VALID_DAYS), self._certificate.not_valid_after_utc)
        builder = _builder(_name(title), self._certificate.subject, key, now, ends)
        uses = x509.KeyUsage(digital_signature=True, key_cert_sign=False, crl_sign=False, **_USES)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        for extension, is_critical in (
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (uses, True),
            (x509.ExtendedKeyUsage(extended_uses), False),
            (x509.SubjectAlternativeName(names), False),
            (authority, False),
        ):
            builder = builder.add_extension(extension, critical=is_critical)
        return _issued(builder.sign(self._key, SHA256()), key)


def client_uri(name: str) -> str:
    """Return the alternative name of a client's certificate, as the file of users has it."""
    return f"URI:urn:poe:client:{name}"


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    """Return what all certificates have."""
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _issued(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Issued:
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    ends = certificate.not_valid_after_utc
    return Issued(certificate.public_bytes(Encoding.PEM), private, ends)


def _alternatives(hosts: Sequence[str], option: str) -> list[x509.GeneralName]:
    names = [_alternative(host, option) for host in hosts]
    if "localhost" in hosts:
        names += [x509.IPAddress(ipaddress.ip_address(each)) for each in ("127.0.0.1", "::1")]
    return list(dict.fromkeys(names))


def _alternative(host: str, option: str) -> x509.GeneralName:
    """Return a host as certificates name it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if _HOST.fullmatch(host) is None:
        allowed = "a name such as poe.example.com, or an address, without a port"
        raise OptionError(option, host, allowed)
    return x509.DNSName(host)
