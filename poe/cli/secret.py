"""Takes secrets from people, files and pipes: never from an argument, which all users can read."""

import getpass
import os
import stat
from contextlib import suppress
from pathlib import Path

from poe.cli.output import write_error
from poe.errors import ConfigError, OptionError

STDIN = "-"
"""Written in the place of a path."""

_BYTES_MAX = 64 << 10
_OTHERS = stat.S_IRGRP | stat.S_IROTH


def ask_password(question: str, instead: str) -> str:
    """Ask on the terminal, which shows nothing of what is typed.

    Raises:
        ConfigError: there is none; it says what to use instead.
    """
    # Asked before: `getpass` would take what is piped in, and show a warning.
    if not has_terminal():
        msg = f"there is no terminal to ask for a password on; use {instead}"
        raise ConfigError(msg)
    try:
        password = getpass.getpass(f"{question}: ")
    except EOFError:
        password = ""
    if not password:
        msg = "no password was typed, and nothing was done"
        raise ConfigError(msg)
    return password


def has_terminal() -> bool:
    """Return whether somebody can be asked, wherever the standard streams lead."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def new_password(question: str, instead: str) -> str:
    """Ask twice for a password that somebody has thought of.

    Raises:
        ConfigError: as `ask_password`, or the two differ.
    """
    password = ask_password(question, instead)
    if ask_password("once more", instead) != password:
        msg = "the two passwords differ, and nothing was done"
        raise ConfigError(msg)
    return password


def warn_of_readers(path: str) -> None:
    """Warn of others who can read the file of a secret, and say what to do."""
    with suppress(OSError):
        mode = Path(path).stat().st_mode
        if stat.S_ISREG(mode) and stat.S_IMODE(mode) & _OTHERS:
            write_error(f"others than its owner may read {path}; use chmod 600 {path}")


def piped_secret(flag: str) -> str:
    """Return the first line of standard input, and leave there what follows.

    Raises:
        OptionError: there is none; `flag` is the option that stands for it.
    """
    line = b""
    try:
        while len(line) < _BYTES_MAX and (byte := os.read(0, 1)) not in {b"", b"\n"}:
            line += byte
        text = line.decode().removesuffix("\r")
    except (OSError, UnicodeDecodeError):
        text = ""
    if not text:
        raise OptionError(flag, STDIN, "a path, or a secret as the first line of standard input")
    return text
