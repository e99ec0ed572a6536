"""The options that say how clients get in: by TLS, and who may."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from poe.broker.access.listen_address import ListenAddress
from poe.errors import OptionError
from poe.option import Range, check_options
from poe.security.server_tls import ServerTls


@dataclass(frozen=True, kw_only=True)  # no slots: it keeps what was looked up
class SecurityOptions:
    """Where clients connect by TLS, with which certificate, who may, and what takes how long.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    tls_port: Annotated[int | None, Range(0, 65535)] = None
    """Listen with TLS, too; 0 takes any free port."""

    tls_host: str = "127.0.0.1"
    """Address to listen on with TLS; others than loopback need `users`, or `insecure`."""

    tls_certificate: Path | None = None
    """PEM file: the server's certificate, then those between it and its authority."""

    tls_key: Path | None = None
    """PEM file: the key of the certificate; by default it is in the same file."""

    tls_client_ca: Path | None = None
    """PEM file: authorities whose certificates clients must have, or may have with `users`."""

    tls_client_crl: Path | None = None
    """PEM file: what is revoked: a list, not expired, of each authority from a client's up to its
    root; where one is missing, all of its clients are refused."""

    tls_min: Literal["1.2", "1.3"] = "1.3"
    """The oldest version of TLS that a client may speak."""

    handshake_timeout: Annotated[float, Range(is_above=True, unit="seconds")] = 5.0
    """Seconds that a client may take for its handshake, from when it has connected."""

    unauthenticated_max: Annotated[int, Range(1, unit="connections")] = 256
    """Clients at a time that are not let in yet; for one more, the oldest of a crowd is closed."""

    unauthenticated_per_address_max: Annotated[int, Range(1, unit="connections")] = 16
    """The same for each address (of IPv6: for each /64) that they come from."""

    users: Path | None = None
    """File of users and grants; with it whoever connects must prove who they are.
    None: whoever can connect may do everything."""

    acl: Path | None = None
    """File of more grants, beside those in `users`."""

    auth_timeout: Annotated[float, Range(is_above=True, unit="seconds")] = 5.0
    """Seconds that a client may take to prove who it is, once its handshake is done."""

    reload_interval: Annotated[float, Range(0, unit="seconds")] = 10.0
    """How often it is looked whether the files have changed; 0: never."""

    def __post_init__(self) -> None:
        """Reject what is not complete."""
        check_options(self)
        if self.acl is not None and self.users is None:
            raise OptionError("acl", str(self.acl), "none without users: grants name users")
        if self.tls_port is not None:
            if self.tls_certificate is None:
                raise OptionError("tls_certificate", "none", "the path of a PEM file for tls_port")
            self.tls_address  # noqa: B018 - refuses what leads nowhere
        elif any((self.tls_certificate, self.tls_key, self.tls_client_ca)):
            raise OptionError("tls_port", "none", "a port: files for TLS are given")
        if self.tls_client_crl is not None and self.tls_client_ca is None:
            allowed = "the path of a PEM file: tls_client_crl is given, which says what it revoked"
            raise OptionError("tls_client_ca", "none", allowed)

    @cached_property
    def tls_address(self) -> ListenAddress:
        """Where `tls_host` leads.

        Raises:
            OptionError: nowhere.
        """
        return ListenAddress.of(self.tls_host, is_public=True, prefix="tls_")

    @property
    def tls(self) -> ServerTls | None:
        """What the server's TLS is made of; None: there is none."""
        if self.tls_port is None or self.tls_certificate is None:
            return None
        return ServerTls(
            certificate=self.tls_certificate,
            key=self.tls_key,
            client_ca=self.tls_client_ca,
            client_crl=self.tls_client_crl,
            minimum=self.tls_min,
            is_certificate_needed=self.users is None,
        )

    @property
    def files(self) -> tuple[Path, ...]:
        """What is read anew by a reload."""
        tls = () if self.tls is None else self.tls.files
        return (*(each for each in (self.users, self.acl) if each is not None), *tls)

    def check_reach(self, *, insecure: bool) -> None:
        """Refuse to listen where others can reach it, unless that was said to be meant.

        Raises:
            OptionError: it is.
        """
        is_open = self.users is None and not insecure
        if self.tls_port is not None and self.tls_address.is_public and is_open:
            allowed = "a loopback address such as 127.0.0.1, or set users, or insecure"
            raise OptionError("tls_host", self.tls_host, allowed)
