"""The options of the gateway: where it listens, what bounds its memory, how it produces."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from poe.broker.access.listen_address import ListenAddress
from poe.client.url import BrokerUrl, parse_url
from poe.errors import OptionError
from poe.gateway.http.edit import Edit
from poe.gateway.http.guard import allowed_host, allowed_origin
from poe.option import Range, check_options
from poe.security.credentials import Certificate, Credentials, PasswordFile, TokenFile
from poe.security.entry import Entry
from poe.security.server_tls import ServerTls
from poe.security.tls import Tls

_READ_COUNT = 100
DOWN_WAIT_S = 0.25
"""How long a request waits for a broker that lately could not be reached."""
_LISTS: tuple[tuple[str, Callable[[object], str], str], ...] = (
    ("allowed_hosts", allowed_host, "names or addresses without a port, as gateway.example"),
    ("allowed_origins", allowed_origin, "scheme, host and port alone, as https://app.example:8443"),
)


@dataclass(frozen=True, kw_only=True)  # no slots: it keeps what was looked up
class GatewayOptions:
    """How the gateway works.

    Its memory is bounded: connections_max × 320 KiB of sockets, in_flight_max of bodies, and the
    producer's own buffer_bytes; each follower holds what one read returns.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    broker: str = "poe://127.0.0.1:5555"
    """poe://HOST:PORT, poes://… for TLS, or kafka://HOST:PORT,HOST:PORT…"""

    ca: Path | None = None
    """PEM file: authorities of the broker's certificate; by default those of the system."""

    certificate: Path | None = None
    """PEM file: the certificate that the gateway shows the broker."""

    key: Path | None = None
    """PEM file: its key; by default it is in the same file."""

    server_name: str | None = None
    """Name in the broker's certificate, if that is not its host."""

    user: str | None = None
    """Who the gateway is to the broker, with `password_file`."""

    password_file: Path | None = None
    """File of that user's password."""

    token_file: Path | None = None
    """File of a token, instead of a user."""

    host: str = "127.0.0.1"
    """Address to listen on; others than loopback need TLS and `authentication`, or `insecure`."""

    port: Annotated[int, Range(0, 65535)] = 8000
    """0 takes any free port."""

    authentication: Literal["none", "bearer"] = "none"
    """none, or bearer: each request needs a token, and the broker says what its owner may."""

    tls_certificate: Path | None = None
    """PEM file: the gateway's certificate, then those between it and its authority; with it
    clients speak HTTPS, and nothing else."""

    tls_key: Path | None = None
    """PEM file: the key of the certificate; by default it is in the same file."""

    tls_client_ca: Path | None = None
    """PEM file: authorities whose certificates clients must have."""

    tls_client_crl: Path | None = None
    """PEM file: what is revoked: a list, not expired, of each authority from a client's up to its
    root; where one is missing, all of its clients are refused."""

    tls_min: Literal["1.2", "1.3"] = "1.3"
    """The oldest version of TLS that a client may speak."""

    reload_interval_s: Annotated[float, Range(0, unit="seconds")] = 10.0
    """How often is looked whether these files have changed; 0: only at SIGHUP."""

    insecure: bool = False
    """Allow an address that others can reach, without TLS or without bearer tokens."""

    allowed_hosts: tuple[str, ...] = ()
    """Names that clients may call the gateway by, besides localhost, `host` and its addresses."""

    allowed_origins: tuple[str, ...] = ()
    """Origins such as https://app.example, whose pages may use the gateway from a browser."""

    body_max: Annotated[int, Range(1)] = 1 << 20
    """Bytes of a request's body; a greater one is refused with 413."""

    messages_max: Annotated[int, Range(1)] = 10_000
    """Messages of one request, likewise."""

    in_flight_max: Annotated[int, Range(1)] = 64 << 20
    """Bytes of all bodies that are being received or worked on; beyond it 503."""

    connections_max: Annotated[int, Range(1)] = 1000
    """Clients at a time; more are answered 503 and closed."""

    connections_per_address_max: Annotated[int | None, Range(1, unit="connections")] = None
    """The same for each address that clients come from; None sets no limit."""

    topics_max: Annotated[int, Range(1)] = 1000
    """Topics that clients may post to, each with a connection to the broker; beyond it 503."""

    followers_max: Annotated[int, Range(1)] = 100
    """Clients that follow topics, each with a connection to the broker; beyond it 503."""

    head_timeout_s: Annotated[float, Range(is_above=True, unit="seconds")] = 10.0
    """Seconds for a request line and headers to arrive, from connecting or their first byte."""

    body_timeout_s: Annotated[float, Range(is_above=True, unit="seconds")] = 30.0
    """Seconds for a body to arrive; then 408. So long, too, a client may take no data."""

    keep_alive_s: Annotated[int, Range(1, unit="seconds")] = 75
    """Seconds that a connection may be idle between two requests."""

    connect_timeout_s: Annotated[float, Range(is_above=True, unit="seconds")] = 2.0
    """Seconds that a request waits for a broker to be reached, but 0.25 s after one could not be
    reached; then 503."""

    sync_timeout_s: Annotated[float, Range(is_above=True, unit="seconds")] = 30.0
    """Seconds that /sync waits for the broker; then 504, and it may still be delivered."""

    read_timeout_s: Annotated[float, Range(is_above=True, unit="seconds")] = 10.0
    """Seconds that a read, or a look whether the broker is there, may take; then 504."""

    read_count_max: Annotated[int, Range(1)] = 1000
    """Messages that one GET returns at most, and without `limit` 100."""

    console: bool = False
    """Serve the console, pages that show the node, at /console."""

    console_level: Literal["read", "operate", "destroy"] = "operate"
    """What those may do who use it: look, also change, also delete and trim."""

    edit: Edit | None = None
    """Function that sees each post first: `edit(Post) -> Post | Answer | Rejection`."""

    edit_timeout_s: Annotated[float, Range(is_above=True, unit="seconds")] = 5.0
    """Seconds that it may take; then 503, and nothing is produced."""

    retry_after_s: Annotated[int, Range(1, unit="seconds")] = 1
    """What Retry-After says in answers 429 and 503."""

    drain_timeout_s: Annotated[int, Range(1, unit="seconds")] = 5
    """Seconds that requests under way get when the gateway is to stop."""

    producer: Mapping[str, Any] = field(default_factory=dict)
    """Options of the producer, by name; `partitions`, `envelope` and `kafka` are the readers' too.

    Unless they say otherwise, a full buffer raises at once (`on_full`), while the broker is down
    the newest messages are refused (`downtime_drop`), so that one that got 202 gives way to none,
    and one request at a time is under way for each topic (`in_flight`).
    """

    def __post_init__(self) -> None:
        """Reject what would open the gateway to others by accident, and numbers that bound none."""
        check_options(self)
        self.broker_url  # noqa: B018 - refuses what leads nowhere
        if self.authentication != "none" and self.broker_url.scheme == "kafka":
            allowed = "none in front of Kafka, which cannot say what a bearer may"
            raise OptionError("authentication", self.authentication, allowed)
        if self.console and self.broker_url.scheme == "kafka":
            raise OptionError("console", self.console, "false in front of Kafka: it shows Poe's")
        if self.tls_certificate is None:
            for name in ("tls_key", "tls_client_ca"):
                if getattr(self, name) is not None:
                    allowed = f"the path of a PEM file: {name} is given, too"
                    raise OptionError("tls_certificate", "none", allowed)
        if self.tls_client_crl is not None and self.tls_client_ca is None:
            allowed = "the path of a PEM file: tls_client_crl is given, which says what it revoked"
            raise OptionError("tls_client_ca", "none", allowed)
        if not self.insecure:
            self.address  # noqa: B018 - refuses one that others can reach
        for name, parse, allowed in _LISTS:
            object.__setattr__(self, name, _list(name, getattr(self, name), parse, allowed))
        if self.edit is not None and not callable(self.edit):
            raise OptionError("edit", self.edit, "a function, or None")

    @property
    def read_count(self) -> int:
        """Messages that are read at a time where a client does not say how many."""
        return min(_READ_COUNT, self.read_count_max)

    @cached_property
    def address(self) -> ListenAddress:
        """Where `host` leads.

        Raises:
            OptionError: nowhere, or to others who would not be asked who they are.
        """
        is_safe = self.tls_certificate is not None and self.authentication == "bearer"
        if self.insecure or is_safe:
            return ListenAddress.of(self.host, is_public=True)
        try:
            return ListenAddress.of(self.host, is_public=False)
        except OptionError as error:
            allowed = f"{error.allowed}; safe is tls_certificate with authentication=bearer"
            raise OptionError("host", self.host, allowed) from error

    @cached_property
    def entry(self) -> Entry:
        """How the gateway gets in at the broker.

        Raises:
            OptionError: the options contradict each other.
        """
        tls: Tls | None = Tls(self.ca, self.certificate, self.key, self.server_name)
        if tls == Tls():
            tls = None
        if self.key is not None and self.certificate is None:
            raise OptionError("certificate", "none", "the path of a PEM file: key is given, too")
        if (self.user is None) is not (self.password_file is None):
            raise OptionError("user", self.user or "none", "it together with password_file")
        if self.user is not None and self.token_file is not None:
            raise OptionError("token_file", self.token_file, "it, or user and password_file")
        credentials: Credentials | None = None
        if self.token_file is not None:
            credentials = TokenFile(self.token_file)
        elif self.user is not None and self.password_file is not None:
            credentials = PasswordFile(self.user, self.password_file)
        elif self.certificate is not None:
            credentials = Certificate()
        return Entry(tls, credentials)

    @cached_property
    def broker_url(self) -> BrokerUrl:
        """Where the brokers are.

        Raises:
            OptionError: `broker` is no url, or goes not with how the gateway gets in.
        """
        for name in ("ca", "certificate", "key", "server_name"):
            value = getattr(self, name)
            if value is not None and self.broker.startswith("poe://"):
                raise OptionError(name, str(value), "it with a broker at poes://…, for TLS")
        return parse_url(self.broker, self.entry)

    @property
    def tls(self) -> ServerTls | None:
        """What the gateway's TLS is made of; None: clients speak plaintext."""
        if self.tls_certificate is None:
            return None
        return ServerTls(
            certificate=self.tls_certificate,
            key=self.tls_key,
            client_ca=self.tls_client_ca,
            client_crl=self.tls_client_crl,
            minimum=self.tls_min,
            protocol="http/1.1",
        )


def _list(
    name: str, given: object, parse: Callable[[object], str], allowed: str
) -> tuple[str, ...]:
    """Return the entries of an option that is a list.

    Raises:
        OptionError: it is none, or one of its entries is wrong.
    """
    # A text is a list of letters, too, and would be taken for that.
    if not isinstance(given, (list, tuple)):
        raise OptionError(name, given, f"a list of {allowed}")
    entries = []
    for each in given:
        try:
            entries.append(parse(each))
        except ValueError as error:
            raise OptionError(name, each, allowed) from error
    return tuple(entries)
