"""Which clients' certificates are trusted, as values that can be compared when that changes.

OpenSSL judges a certificate when a client connects. Afterwards nobody asks it again, and it could
not tell: so what has changed is found by comparing authorities, and what they have revoked.

Layout (DER, as far as it is read):
    Certificate      SEQUENCE { TBS SEQUENCE { [0] version?, INTEGER serial, SEQUENCE algorithm,
                     SEQUENCE issuer, SEQUENCE validity, SEQUENCE subject, … }, … }
    CertificateList  SEQUENCE { TBS SEQUENCE { INTEGER version?, SEQUENCE algorithm,
                     SEQUENCE issuer, TIME, TIME?, SEQUENCE OF SEQUENCE { INTEGER serial, … }?,
                     … }, … }
"""

import base64
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Self

_INTEGER, _SEQUENCE, _VERSION = 0x02, 0x30, 0xA0
_TIMES = {0x17, 0x18}
_LONG = 0x80
_CUT = "what is there is cut short"
_PEM = re.compile(rb"-----BEGIN ([^-]+)-----(.*?)-----END \1-----", re.DOTALL)


class _Value(NamedTuple):
    """One value of DER: its tag and content."""

    tag: int
    content: bytes


class CertificateId(NamedTuple):
    """What names a certificate: who issued it, and its number with them."""

    issuer: bytes
    serial: bytes


@dataclass(frozen=True, slots=True)
class ClientTrust:
    """Certificates that are trusted, as DER, of authorities mostly, and what these have revoked."""

    anchors: frozenset[bytes]
    revoked: frozenset[CertificateId]
    listed: frozenset[bytes] = frozenset()
    """The subjects of those of whom there is a list of what they have revoked."""

    _named: dict[bytes, dict[bytes, CertificateId]] = field(init=False, repr=False, compare=False)
    """Anchors by their subjects, each with who issued it: many clients are looked at in a turn."""

    def __post_init__(self) -> None:
        """Read each anchor once."""
        named: dict[bytes, dict[bytes, CertificateId]] = {}
        for each in self.anchors:
            named.setdefault(_subject(each), {})[each] = _issued(each)
        object.__setattr__(self, "_named", named)

    @classmethod
    def of(cls, anchors: frozenset[bytes], revocation_lists: bytes = b"") -> Self:
        """Make it of authorities, and of revocation lists in PEM form.

        Raises:
            ValueError: there are other things in the lists, or no list at all.
        """
        found = [(kind, base64.b64decode(text)) for kind, text in _PEM.findall(revocation_lists)]
        # OpenSSL would trust a certificate that it finds there.
        if revocation_lists and {kind for kind, _ in found} != {b"X509 CRL"}:
            kinds = ", ".join(sorted({kind.decode("ascii", "replace") for kind, _ in found}))
            msg = f"found: {kinds or 'nothing'}"
            raise ValueError(msg)
        lists = [_listed(one) for _, one in found]
        revoked = frozenset(each for _, ids in lists for each in ids)
        return cls(anchors, revoked, frozenset(issuer for issuer, _ in lists))

    def unlisted(self, authorities: Iterable[bytes]) -> list[str]:
        """Return the names of authorities, given as DER, of whom there is no list."""
        return sorted(map(_words, {_subject(each) for each in authorities} - self.listed))

    def has_lost(self, certificate: bytes, newer: "ClientTrust | None") -> bool:
        """Return whether a client's certificate, which was trusted, is no longer.

        Of a certificate that an authority between has signed nobody can tell which of the roots
        stands behind it, nor which one of those with the same name, as an old and a new key have:
        it has lost its trust when any of them is gone, and its client may try. One that is trusted
        as such, between or not, is worth no more than who has signed it.
        """
        if newer is None:
            return True
        issued = _issued(certificate)
        if issued in newer.revoked:
            return True
        signers, names = dict[bytes, CertificateId](), {issued.issuer}
        while names:
            found = [self._named.get(each, {}) for each in names]
            own = {anchor: by for each in found for anchor, by in each.items()}
            names = {by.issuer for anchor, by in own.items() if anchor not in signers}
            signers |= own
        # Who was revoked before has let nobody in: another key of that name stands behind them.
        if any(each in newer.revoked and each not in self.revoked for each in signers.values()):
            return True
        return not newer.anchors.issuperset(signers or self.anchors)


def certificates_in(pem: bytes) -> frozenset[bytes]:
    """Return the certificates of a file in PEM form, as DER; also of who is no authority.

    Raises:
        ValueError: one is cut short, or none at all.
    """
    found = [base64.b64decode(text) for kind, text in _PEM.findall(pem) if kind == b"CERTIFICATE"]
    for each in found:
        _subject(each)
    return frozenset(found)


def _values(content: bytes) -> Iterator[_Value]:
    """Split what a value holds.

    Raises:
        ValueError: it is cut short.
    """
    offset = 0
    while offset < len(content):
        if offset + 1 == len(content):
            raise ValueError(_CUT)
        tag, length = content[offset], content[offset + 1]
        offset += 2
        if length & _LONG:
            size = length & ~_LONG
            length = int.from_bytes(content[offset : offset + size], "big")
            offset += size
        if offset + length > len(content):
            raise ValueError(_CUT)
        yield _Value(tag, content[offset : offset + length])
        offset += length


def _first(content: bytes) -> _Value:
    for value in _values(content):
        return value
    raise ValueError(_CUT)


def _signed_values(encoded: bytes) -> list[_Value]:
    """Return what is signed of a certificate or of a list, without its version."""
    (whole,) = _values(encoded)
    content = _first(whole.content).content
    values = list(_values(content))
    return values[1:] if _first(content).tag == _VERSION else values


def _issued(certificate: bytes) -> CertificateId:
    serial, _, issuer, *_ = _signed_values(certificate)
    return CertificateId(issuer.content, serial.content)


def _subject(certificate: bytes) -> bytes:
    _, _, _, _, subject, *_ = _signed_values(certificate)
    return subject.content


def _words(name: bytes) -> str:
    """Return the texts that a name is made of, for a log."""
    pairs = [_values(pair.content) for each in _values(name) for pair in _values(each.content)]
    return ", ".join(ascii(text.content.decode(errors="replace"))[1:-1] for _, text in pairs)


def _listed(revocation_list: bytes) -> tuple[bytes, list[CertificateId]]:
    """Return whose list it is, and what it revokes."""
    first, *values = _signed_values(revocation_list)
    if first.tag == _INTEGER:
        first, *values = values
    issuer, *rest = values
    rest = [each for each in rest if each.tag not in _TIMES]
    revoked = _values(rest[0].content) if rest and rest[0].tag == _SEQUENCE else ()
    ids = [CertificateId(issuer.content, _first(each.content).content) for each in revoked]
    return issuer.content, ids
