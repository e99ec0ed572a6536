"""Says at the start of a server what is open, how, and to whom."""

from collections.abc import Iterator

from poe.broker import SecurityOptions

Address = tuple[str, int]


def doors(
    plain: Address | None, tls: Address | None, thespian_port: int | None, security: SecurityOptions
) -> Iterator[str]:
    """Yield a sentence for each port, with who gets in."""
    whom = "anybody who can reach it, for there are no users"
    if security.users is not None:
        whom = f"whoever proves to be a user of {security.users}"
    if plain is not None:
        yield f"open: {address_text(plain)}, in plaintext, to {whom}"
    if tls is not None:
        if security.tls_client_ca is not None:
            certificate = f"a certificate of {security.tls_client_ca}"
            whom = f"{whom}, for which {certificate} may do"
            if security.users is None:
                whom = f"whoever has {certificate}"
        yield f"open: {address_text(tls)}, by TLS {security.tls_min} or newer, to {whom}"
    if thespian_port is not None:
        whom = "whoever can connect, and then can run code as this server's user"
        yield f"open: 127.0.0.1:{thespian_port}, to Thespian programs, that is to {whom}"


def address_text(address: Address) -> str:
    """Return HOST:PORT."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
