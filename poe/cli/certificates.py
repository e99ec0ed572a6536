"""`poe certificates`: makes what a first TLS server needs, in a folder and nowhere else."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from poe.cli import argument
from poe.cli.output import write_line
from poe.errors import ConfigError, OptionError, SecurityMissing
from poe.security.names import USER_NAMES, is_user_name
from poe.security.replacement import locked_folder, replace_files

if TYPE_CHECKING:
    from poe.cli.authority import Issued

_AUTHORITY: Final = "ca"
_SERVER: Final = "server"


def certificates(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Where they go; made if need be.", parser=argument.folder
        ),
    ],
    *,
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME|ADDRESS",
            help="By which clients know the server; may be repeated.",
        ),
    ] = None,
    clients: Annotated[
        list[str] | None,
        typer.Option(
            "--client", metavar="NAME", help="A client that proves itself so; may be repeated."
        ),
    ] = None,
    nodes: Annotated[
        list[str] | None,
        typer.Option(
            "--node",
            metavar="NAME|ADDRESS",
            help="The --cluster-host of a node of a cluster; may be repeated.",
        ),
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Replace those of who is named here, with their keys.")
    ] = False,
) -> None:
    """Make a certificate authority, and certificates for a server, clients and nodes, of 90 days.

    They are for development, and for who has no authority of his own: nothing is installed where
    the system would trust it. A folder that has an authority keeps it, so that clients can be added
    later, and certificates renewed. Without --renew no file is replaced.
    """
    names = list(dict.fromkeys(clients or ()))
    nodes = list(dict.fromkeys(nodes or ()))
    if not (hosts or names or nodes):
        msg = "give --host NAME, by which clients know the server, --client NAME, or --node NAME"
        raise ConfigError(msg)
    for name in names:
        if not is_user_name(name) or name in {_AUTHORITY, _SERVER}:
            raise OptionError("--client", name, f"{USER_NAMES}, and neither ca nor server")
    for name in nodes:
        if name in {_AUTHORITY, _SERVER, *names}:
            raise OptionError("--node", name, "a name that no other file of the folder has")
    if find_spec("cryptography") is None:
        raise SecurityMissing("cryptography")
    # Late: it loads what may be missing.
    from poe.cli.authority import Authority, client_uri  # noqa: PLC0415

    now, made = datetime.now(UTC), {}
    certificate, key = (folder / f"{_AUTHORITY}.{kind}" for kind in ("pem", "key"))
    if certificate.exists() or key.exists():
        authority = Authority.load(certificate, key)
    else:
        authority = Authority.create(now)
        made[_AUTHORITY] = authority.issued
    if hosts:
        made[_SERVER] = authority.server(hosts, now)
    made |= {name: authority.client(name, now) for name in names}
    made |= {name: authority.node(name, now) for name in nodes}
    _write(folder, made, renew=renew)
    for name, issued in made.items():
        use = f"of the user with the certificate {client_uri(name)}"
        others = {_AUTHORITY: "what clients trust", _SERVER: "of the server"}
        use = (others | dict.fromkeys(nodes, "of a node of a cluster")).get(name, use)
        write_line(f"{folder / name}.pem\t{use}, until {issued.ends:%Y-%m-%d}")
        write_line(f"{folder / name}.key\tits key, for nobody else")


def _write(folder: Path, made: "Mapping[str, Issued]", *, renew: bool) -> None:
    """Write certificates and keys, none in the place of another unless it is to be renewed.

    Two commands at a time write one after the other, and the later one looks what is there then: an
    authority that another one has just made has signed something already, and stays.

    Raises:
        ConfigError: there is one already; nothing was written.
        OptionError: it is no folder that can be written to.
        SecurityFileError: somebody keeps the folder locked.
    """
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        allowed = f"a folder that can be made and written to ({error.strerror})"
        raise OptionError("DIR", str(folder), allowed) from error
    files = {}
    for name, issued in made.items():
        files[str(folder / f"{name}.key")] = (issued.key, 0o600)
        files[str(folder / f"{name}.pem")] = (issued.certificate, 0o644)
    with locked_folder(str(folder)):
        for path in filter(os.path.lexists, files):
            if Path(path).stem == _AUTHORITY:
                msg = f"{path} is there by now, and nothing was written; try again, to go by it"
                raise ConfigError(msg)
            if not renew:
                how = "give --renew to replace it"
                msg = f"{path} is there already, and nothing was written; {how}"
                raise ConfigError(msg)
        replace_files(files)
