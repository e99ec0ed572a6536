"""SCRAM-SHA-256 and -PLUS (RFC 5802, 7677): a password is proved and never sent.

Both ends as steps from bytes to bytes, without sockets. The server keeps keys that are made of the
password, and of which nobody gets the password but by guessing; the client makes them anew. Each
end proves itself to the other. PLUS binds the proof to the server's certificate, so that nobody in
between, with another certificate, can pass it on.

    client-first  <binding>,,n=<user>,r=<nonce>
    server-first  r=<both nonces>,s=<salt>,i=<iterations>,x=<mechanisms that the server has>
    client-final  c=<binding and its data>,r=<both nonces>,p=<proof>
    server-final  v=<signature>

The last field of server-first is ours; proof and signature cover it. So a client that was kept from
PLUS by somebody in between finds out.

Strategy: one grammar a message, as one expression that must match all of it.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice, repeat
from typing import Final, NoReturn, Self

from poe.errors import AuthenticationFailed, OptionError, RemoteProtocolError, SecurityError
from poe.security.saslprep import saslprep

SCRAM: Final = "SCRAM-SHA-256"
SCRAM_PLUS: Final = "SCRAM-SHA-256-PLUS"
ITERATIONS: Final = 4096
"""For secrets that were generated; the least that is accepted."""
ITERATIONS_OF_PEOPLE: Final = 600_000
"""For passwords that somebody has thought of."""
KEYS_MAX: Final = 2
"""Keys of one user at a time: the old ones and the new ones while a password changes."""

_ITERATIONS_MAX = 10_000_000
"""A client's seconds of work; a server that demands more is not answered."""
_SALT_BYTES = 16
_SALT_BYTES_MAX = 64
_NONCE_BYTES = 18
_KEY_BYTES = 32
_BASE64 = rb"[A-Za-z0-9+/]+={0,2}"
_NONCE = rb"[\x21-\x2b\x2d-\x7e]{1,256}"
_CLIENT_FIRST = re.compile(
    rb"((?:[ny]|p=tls-server-end-point),,)(n=([^,\0]{1,1000}),r=(%b))" % _NONCE
)
_SERVER_FIRST = re.compile(
    rb"r=(%b),s=(%b),i=([1-9][0-9]{0,8})(?:,x=([^,]*))?(?:,[A-Za-z]=[^,]*)*" % (_NONCE, _BASE64)
)
_CLIENT_FINAL = re.compile(rb"(c=(%b),r=(%b)),p=(%b)" % (_BASE64, _NONCE, _BASE64))
_SERVER_FINAL = re.compile(rb"v=(%b)(?:,[A-Za-z]=[^,]*)*" % _BASE64)
_NOT_ENCODED = re.compile(rb"=(?!2C|3D)")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_BINDING = b"p=tls-server-end-point,,"
_PREPARED = (
    "1 character or more, none of them a control one or newer than Unicode 3.2, as emoji are; what "
    "is written from right to left has to begin and end so"
)
"""What SASLprep allows."""


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What a server keeps of a password."""

    iterations: int
    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of_password(
        cls, password: str, iterations: int = ITERATIONS, salt: bytes | None = None
    ) -> Self:
        """Make the keys of a password; with those of its predecessor's salt both can be valid.

        Raises:
            OptionError: the password has characters that no password may have, or none at all.
        """
        salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
        salted = _salted(_prepared_password(password), salt, iterations)
        return cls(iterations, salt, _stored_key(salted), _server_key(salted))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read what `text` has written; None: it is something else."""
        iterations, *parts = text.split("$")
        found = [_base64_bytes(each.encode()) for each in parts]
        match found:
            case [bytes(salt), bytes(stored_key), bytes(server_key)]:
                keys = cls(_number(iterations), salt, stored_key, server_key)
                return keys if keys._are_sound() else None
        return None

    def text(self) -> str:
        """Return them for a file: `<iterations>$<salt>$<stored key>$<server key>`, in base64."""
        parts = (self.salt, self.stored_key, self.server_key)
        return "$".join([str(self.iterations), *(_base64(each).decode() for each in parts)])

    def _are_sound(self) -> bool:
        return (
            ITERATIONS <= self.iterations <= _ITERATIONS_MAX
            and 1 <= len(self.salt) <= _SALT_BYTES_MAX
            and len(self.stored_key) == len(self.server_key) == _KEY_BYTES
        )


class ScramServer:
    """The server's part of one authentication: `first`, then `final`, each once.

    A name that is not known takes the same steps with keys that nobody can prove: its salt never
    changes, and what is answered, when and in which words does not tell that nobody has it.

    Args:
        find: the keys of a user, at most `KEYS_MAX` with one salt and count; empty: none.
        server_secret: 32 bytes that only this server knows, and that outlive its restarts.
        binding: `endpoint_binding` of the server's certificate; None without TLS.
        nonce: for tests; random otherwise.
    """

    def __init__(
        self,
        find: Callable[[str], Sequence[ScramKeys]],
        server_secret: bytes,
        binding: bytes | None,
        *,
        nonce: str | None = None,
    ) -> None:
        self._find = find
        self._secret = server_secret
        self._binding = binding
        self._nonce: bytes | None = (nonce or _make_nonce()).encode()
        self._begun: _Begun | None = None
        self.proved: ScramKeys | None = None
        """The keys whose password was proved; a user may have two."""

    def first(self, data: bytes) -> bytes:
        """Take client-first, return server-first.

        Raises:
            AuthenticationFailed: it is no such message, or what binds the client is not as here.
        """
        match = _CLIENT_FIRST.fullmatch(data)
        own_nonce, self._nonce = self._nonce, None
        if own_nonce is None or match is None:
            _refuse("not a first message")
        header, bare, encoded, client_nonce = match.groups()
        user = _decoded_name(encoded)
        if user is None:
            _refuse("the name is no text")
        if header == _BINDING and self._binding is None:
            _refuse("bound to a certificate, without TLS")
        if header == b"y,," and self._binding is not None:
            # It could have bound, and somebody told it that we cannot.
            _refuse("the client was kept from binding")
        known = self._find(user)
        # As many keys for everybody: how many somebody has is nobody's business.
        keys = list(islice(chain(known, repeat(self._keys_of_nobody(user))), KEYS_MAX))
        told = keys[0]
        nonce = client_nonce + own_nonce
        offered = SCRAM if self._binding is None else f"{SCRAM_PLUS} {SCRAM}"
        server_first = b"r=%b,s=%b,i=%d,x=%b" % (
            nonce,
            _base64(told.salt),
            told.iterations,
            offered.encode(),
        )
        bound = header + (self._binding or b"") if header == _BINDING else header
        messages = bare + b"," + server_first + b","
        self._begun = _Begun(user, len(known), keys, nonce, bound, messages)
        return server_first

    def final(self, data: bytes) -> tuple[bytes, str]:
        """Take client-final, return server-final and the user, who has now proved the password.

        Raises:
            AuthenticationFailed: for whatever reason.
        """
        begun, self._begun = self._begun, None
        match = _CLIENT_FINAL.fullmatch(data)
        if begun is None or match is None:
            _refuse("not a final message")
        without_proof, bound, nonce, proof = match.groups()
        if not hmac.compare_digest(nonce, begun.nonce):
            _refuse("the nonce is another authentication's")
        if _base64_bytes(bound) != begun.bound:
            _refuse("bound to another certificate")
        messages = begun.messages + without_proof
        given = _base64_bytes(proof) or b""
        proved = [
            keys
            for number, keys in enumerate(begun.keys)
            if _is_proved(keys, messages, given) and number < begun.known
        ]
        if not proved:
            why = "wrong password" if begun.known else "unknown user, or one without a password"
            _refuse(f"{why}: {begun.user[:200]!r}")
        self.proved = proved[0]
        return b"v=" + _base64(_hmac(self.proved.server_key, messages)), begun.user

    def _keys_of_nobody(self, user: str) -> ScramKeys:
        digest = _hmac(self._secret, user.encode())
        # Some users have more iterations; so have some who do not exist.
        iterations = (ITERATIONS, ITERATIONS_OF_PEOPLE)[digest[_SALT_BYTES] % 2]
        return ScramKeys(iterations, digest[:_SALT_BYTES], digest, digest)


@dataclass(frozen=True, slots=True)
class _Begun:
    """An authentication whose first messages were exchanged."""

    user: str
    known: int
    """How many of `keys` are the user's; the others fill up."""

    keys: list[ScramKeys] = field(repr=False)
    nonce: bytes
    bound: bytes
    messages: bytes
    """What proof and signature cover, but for the last part."""


def _refuse(reason: str) -> NoReturn:
    raise AuthenticationFailed.because(reason)


class ScramClient:
    """The client's part of one authentication: `first`, `final`, `check`, in this order.

    Args:
        user: the name.
        password: its password.
        binding: `endpoint_binding` of the server's certificate; None without TLS.
        nonce: for tests; random otherwise.

    Raises:
        OptionError: on construction: user or password have characters that none may have.
    """

    def __init__(
        self, user: str, password: str, binding: bytes | None, *, nonce: str | None = None
    ) -> None:
        self.mechanism: Final = SCRAM if binding is None else SCRAM_PLUS
        self._password = _prepared_password(password)
        self._nonce = (nonce or _make_nonce()).encode()
        self._bare = b"n=%b,r=%b" % (_encoded_name(user), self._nonce)
        self._header = b"n,," if binding is None else _BINDING
        self._bound = self._header + (binding or b"")
        self._signature = b""

    def first(self) -> bytes:
        """Return client-first."""
        return self._header + self._bare

    def final(self, server_first: bytes) -> bytes:
        """Take server-first, return client-final. A password of many iterations takes its time.

        Raises:
            RemoteProtocolError: it is no such message, or asks for too little or too much work.
            SecurityError: somebody has kept this client from TLS.
        """
        match = _SERVER_FIRST.fullmatch(server_first)
        salt = None if match is None else _base64_bytes(match[2])
        if match is None or salt is None or not self._is_ours(match[1]):
            msg = "the server answers an authentication with what is no first message of SCRAM"
            raise RemoteProtocolError(msg)
        nonce, iterations, offered = match[1], int(match[3]), (match[4] or b"").split()
        if not ITERATIONS <= iterations <= _ITERATIONS_MAX:
            msg = (
                f"the server asks for {iterations} iterations of the password's hash; "
                f"{ITERATIONS} to {_ITERATIONS_MAX} are allowed"
            )
            raise RemoteProtocolError(msg)
        if self.mechanism != SCRAM_PLUS and SCRAM_PLUS.encode() in offered:
            msg = (
                "the server has TLS on its end of this connection, and this end has none: somebody "
                "is in between; use poes://, and the port of TLS"
            )
            raise SecurityError(msg)
        salted = _salted(self._password, salt, iterations)
        without_proof = b"c=%b,r=%b" % (_base64(self._bound), nonce)
        messages = b",".join((self._bare, server_first, without_proof))
        client_key = _hmac(salted, b"Client Key")
        proof = _xor(client_key, _hmac(hashlib.sha256(client_key).digest(), messages))
        self._signature = _hmac(_server_key(salted), messages)
        return b"%b,p=%b" % (without_proof, _base64(proof))

    def check(self, server_final: bytes) -> None:
        """Take server-final.

        Raises:
            SecurityError: the server has not proved that it has keys of the password.
        """
        match = _SERVER_FINAL.fullmatch(server_final)
        given = None if match is None else _base64_bytes(match[1])
        if not self._signature or not hmac.compare_digest(given or b"", self._signature):
            msg = (
                "the server has not proved that it knows this user; it is not the one that it "
                "should be: check the address"
            )
            raise SecurityError(msg)

    def _is_ours(self, nonce: bytes) -> bool:
        return nonce.startswith(self._nonce) and len(nonce) > len(self._nonce)


def _is_proved(keys: ScramKeys, messages: bytes, proof: bytes) -> bool:
    if len(proof) != _KEY_BYTES:
        return False
    client_key = _xor(proof, _hmac(keys.stored_key, messages))
    return hmac.compare_digest(hashlib.sha256(client_key).digest(), keys.stored_key)


@lru_cache(maxsize=64)
def _salted(password: bytes, salt: bytes, iterations: int) -> bytes:
    """Return the salted password; a client that connects again does the work once."""
    return hashlib.pbkdf2_hmac("sha256", password, salt, iterations)


def _stored_key(salted: bytes) -> bytes:
    return hashlib.sha256(_hmac(salted, b"Client Key")).digest()


def _server_key(salted: bytes) -> bytes:
    return _hmac(salted, b"Server Key")


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _xor(left: bytes, right: bytes) -> bytes:
    return (int.from_bytes(left) ^ int.from_bytes(right)).to_bytes(_KEY_BYTES)


def _make_nonce() -> str:
    return secrets.token_urlsafe(_NONCE_BYTES)


def _base64(data: bytes) -> bytes:
    return base64.b64encode(data)


def _base64_bytes(text: bytes) -> bytes | None:
    """Return what the text stands for; None: nothing, or it is not how anybody writes that."""
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return data if _base64(data) == text else None


def _number(text: str) -> int:
    """Return a count of iterations; 0: it is none."""
    return int(text) if _NUMBER.fullmatch(text) else 0


def _prepared_password(password: str) -> bytes:
    prepared = saslprep(password)
    if not prepared:
        raise OptionError("password", "(hidden)", _PREPARED)
    return prepared.encode()


def _encoded_name(user: str) -> bytes:
    prepared = saslprep(user)
    if not prepared:
        raise OptionError("user", user, _PREPARED)
    return prepared.replace("=", "=3D").replace(",", "=2C").encode()


def _decoded_name(encoded: bytes) -> str | None:
    """Return the name that a message carries, in its one form; None: it is none."""
    if _NOT_ENCODED.search(encoded):
        return None
    try:
        return saslprep(encoded.replace(b"=2C", b",").replace(b"=3D", b"=").decode()) or None
    except UnicodeDecodeError:
        return None
