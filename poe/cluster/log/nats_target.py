"""Where a node finds its engine, and what it says there to be let in."""

import ssl
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from poe.cluster.options import ClusterOptions
from poe.errors import LogEngineUnfit

_JWT: Final = "-----BEGIN NATS USER JWT-----"


class Login(NamedTuple):
    """Who a node is to the engine; no more than one of them is given."""

    user: str | None = None
    password: str | None = None
    token: str | None = None
    credentials: Path | None = None


@dataclass(frozen=True)
class NatsTarget:
    """Servers that may be asked, any of them, and how."""

    urls: tuple[str, ...]
    login: Login = field(default=Login(), repr=False)
    system: Login | None = field(default=None, repr=False)
    """For what concerns the servers themselves; None: that is somebody else's."""
    tls: ssl.SSLContext | None = None


class FindTarget(Protocol):
    """What knows where the engine is just now: a server that is started again listens elsewhere."""

    def target(self) -> NatsTarget | None:
        """Return it; None: there is none, for the moment.

        Raises:
            ClusterError: that will not change by itself.
        """
        ...


@dataclass(frozen=True)
class OutsideServers:
    """The servers of an operator, by url."""

    options: ClusterOptions

    def target(self) -> NatsTarget:
        """Return where they are; the files are read each time, as they may have been renewed."""
        urls = self.options.log_urls
        return NatsTarget(urls, self._login(), None, self._tls(urls))

    def _login(self) -> Login:
        path = self.options.log_credentials
        if path is None:
            return Login()
        try:
            text = path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = f"log_credentials {path} cannot be read ({error})"
            raise LogEngineUnfit(
                why, "give the path of a file as `log_credentials` has it"
            ) from None
        if _JWT in text:
            if find_spec("nkeys") is None:
                why = f"log_credentials {path} are signed with nkeys, which are not installed"
                raise LogEngineUnfit(why, "pip install nkeys")
            return Login(credentials=path)
        user, colon, password = text.partition(":")
        return Login(user, password) if colon else Login(token=text)

    def _tls(self, urls: tuple[str, ...]) -> ssl.SSLContext | None:
        """Have servers show a certificate of the cluster's authority, and show that of the node."""
        if not any(url.startswith("tls:") for url in urls):
            return None
        options = self.options
        try:
            cafile = None if options.cluster_ca is None else str(options.cluster_ca)
            context = ssl.create_default_context(cafile=cafile)
            if options.cluster_certificate is not None and options.cluster_key is not None:
                context.load_cert_chain(options.cluster_certificate, options.cluster_key)
        except (OSError, ssl.SSLError) as error:
            why = f"the files of cluster_certificate, _key and _ca cannot be used ({error})"
            raise LogEngineUnfit(why, "give the paths of PEM files") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context
