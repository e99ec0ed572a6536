"""Refuses what a web page makes a browser send to the gateway: before routing, whatever the path.

A gateway asks for no password, so that whoever reaches it may use it; on loopback that is whoever
runs programs here. A browser is one that runs others' programs. It says whose, and is believed:

    Host             what the user's page thinks it talks to. A name that its owner has let lead
                     here (DNS rebinding) is none of ours
    Origin           whose page it is that asks; other clients than browsers send none
    Sec-Fetch-Site   how that page is related to us, also where a browser sends no origin
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from poe.errors import RequestRefused
from poe.errors.short_text import short_repr
from poe.security.loopback import is_loopback

Headers = list[tuple[bytes, bytes]]

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{0,5}))?")
_ORIGIN = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PORT_MAX = 65535
_DEFAULT_PORTS = {"http": 80, "https": 443}
_OUR_SITES = frozenset({b"same-origin", b"none"})
"""The user has typed the address, or a page of this gateway asks."""
_METHODS = b"DELETE, GET, HEAD, PATCH, POST, PUT"
_EXPOSED = b"Poe-Next, Poe-Pointer, Poe-Partition, Retry-After"
_PREFLIGHT_AGE_S = b"600"


def allowed_host(text: object) -> str:
    """Return a host as it is compared: a name in lower case, or an address.

    Raises:
        ValueError: it is none, or more than that.
    """
    if not isinstance(text, str):
        raise ValueError  # noqa: TRY004 - as for any other that is none
    if _is_address(text):
        return str(ipaddress.ip_address(text))
    found = _HOST.fullmatch(text)
    if found is None or found[2] is not None:
        raise ValueError
    return _host_name(found[1])


def allowed_origin(text: object) -> str:
    """Return an origin as browsers write it: in lower case, and without a port that is usual.

    Raises:
        ValueError: it is none; `null`, which any page can be, is none either.
    """
    found = _ORIGIN.fullmatch(text.lower()) if isinstance(text, str) else None
    if found is None or int(found[3] or 0) > _PORT_MAX:
        raise ValueError
    scheme, host, port = found.groups()
    host = _host_name(host)
    host = f"[{host}]" if ":" in host else host
    is_usual = port is None or int(port) == _DEFAULT_PORTS[scheme]
    return f"{scheme}://{host}" if is_usual else f"{scheme}://{host}:{int(port)}"


class Guard:
    """Decides by the head of a request alone whether it is served.

    Served are: loopback names and addresses, the address that the client has connected to, as a
    number, and the names that were given. A number is safe: no page of another site has it as host.
    """

    def __init__(self, own: str, hosts: Iterable[str], origins: Iterable[str]) -> None:
        """Allow these.

        Args:
            own: what the gateway listens on; it counts where it is a name. 0.0.0.0 is no host.
            hosts: as `allowed_host` returns them.
            origins: as `allowed_origin` returns them.
        """
        self._hosts = {"localhost", *hosts}
        if not _is_address(own):
            self._hosts.add(own.lower().removesuffix("."))
        self._origins = {each.encode() for each in origins}

    def admit(self, scope: Mapping[str, Any]) -> bytes | None:
        """Return the origin of an allowed page, None where no page asks.

        Raises:
            RequestRefused: 400 the request has no host, or several; 421 it is not ours; 403 a page
                asks that may not.
        """
        headers: Headers = scope["headers"]
        self._check_host(_values(headers, b"host"), scope.get("server"))
        origins = _values(headers, b"origin")
        for each in origins:
            if each not in self._origins:
                why = f"pages of {_shown(each)} may not use this gateway (option allowed_origins)"
                raise RequestRefused(HTTPStatus.FORBIDDEN, why)
        if not origins and not _OUR_SITES.issuperset(_values(headers, b"sec-fetch-site")):
            why = "pages of other sites may not use this gateway (option allowed_origins)"
            raise RequestRefused(HTTPStatus.FORBIDDEN, why)
        return origins[0] if origins else None

    def admit_own(self, scope: Mapping[str, Any], *, is_page: bool) -> None:
        """Let pass what pages of this gateway ask, which hold a session.

        Args:
            scope: of the request.
            is_page: whether it is a page itself, which others may lead to, and that tells nothing.

        Raises:
            RequestRefused: 400 the request has no host, or several; 421 it is not ours; 403 a page
                of another site asks.
        """
        headers: Headers = scope["headers"]
        hosts = _values(headers, b"host")
        self._check_host(hosts, scope.get("server"))
        if is_page and scope["method"] in {"GET", "HEAD"}:
            return
        own = scope["scheme"].encode() + b"://" + hosts[0].lower()
        for each in _values(headers, b"origin"):
            if each.lower() != own and each not in self._origins:
                why = f"pages of {_shown(each)} may not use the console (option allowed_origins)"
                raise RequestRefused(HTTPStatus.FORBIDDEN, why)
        if not _OUR_SITES.issuperset(_values(headers, b"sec-fetch-site")):
            why = "pages of other sites may not use the console"
            raise RequestRefused(HTTPStatus.FORBIDDEN, why)

    def reply_headers(self, origin: bytes | None) -> Headers:
        """Return what an answer says to the browser of a page that may read it."""
        if not self._origins:
            return []
        headers: Headers = [(b"vary", b"Origin")]
        if origin is not None:
            headers.append((b"access-control-allow-origin", origin))
            headers.append((b"access-control-expose-headers", _EXPOSED))
        return headers

    def _check_host(self, values: list[bytes], server: tuple[str, int | None] | None) -> None:
        found = _HOST.fullmatch(values[0].decode("latin-1")) if len(values) == 1 else None
        if found is None or int(found[2] or 0) > _PORT_MAX:
            shown = " and ".join(map(_shown, values)) or "missing"
            raise RequestRefused(
                HTTPStatus.BAD_REQUEST, f"the host is {shown}; send one Host, a name or name:port"
            )
        try:
            name = _host_name(found[1])
        except ValueError as error:
            why = f"the host {_shown(values[0])} is no address"
            raise RequestRefused(HTTPStatus.BAD_REQUEST, why) from error
        if name in self._hosts or _is_own_address(name, server):
            return
        why = f"{_shown(values[0])} is no host of this gateway (option allowed_hosts)"
        raise RequestRefused(HTTPStatus.MISDIRECTED_REQUEST, why)


def preflight_headers(scope: Mapping[str, Any]) -> Headers | None:
    """Return the answer to a browser that asks what a page of an allowed origin may send.

    It is anything that the gateway or an edit hook may look at; there are no cookies to guard.
    None stands for a request that does not ask that.
    """
    headers: Headers = scope["headers"]
    if scope["method"] != "OPTIONS" or not _values(headers, b"access-control-request-method"):
        return None
    reply: Headers = [
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-max-age", _PREFLIGHT_AGE_S),
    ]
    asked = b",".join(_values(headers, b"access-control-request-headers")).split(b",")
    names = [each.strip() for each in asked if _FIELD.fullmatch(each.strip())]
    if names:
        reply.append((b"access-control-allow-headers", b", ".join(names)))
    # A page of the internet asks for a server of a private network, or of the user's machine.
    if b"true" in _values(headers, b"access-control-request-private-network"):
        reply.append((b"access-control-allow-private-network", b"true"))
    return reply


def _values(headers: Headers, name: bytes) -> list[bytes]:
    return [value.strip() for each, value in headers if each == name]


def _host_name(text: str) -> str:
    """Return a host as it is compared.

    Raises:
        ValueError: what stands in brackets is no address, or nothing is left of a name.
    """
    if text.startswith("["):
        return str(ipaddress.IPv6Address(text[1:-1]))
    name = text.lower().removesuffix(".")
    if not name:
        raise ValueError
    return name


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_own_address(name: str, server: tuple[str, int | None] | None) -> bool:
    """Return whether a host is an address of loopback, or the one that the request came to."""
    try:
        if is_loopback(name):
            return True
        # `%` is the network interface of an address that is valid on one only.
        own = ipaddress.ip_address(server[0].partition("%")[0]) if server else None
        mapped = own.ipv4_mapped if isinstance(own, ipaddress.IPv6Address) else None
        return (mapped or own) == ipaddress.ip_address(name)
    except ValueError:
        return False


def _shown(value: bytes) -> str:
    return short_repr(value.decode("latin-1"))
